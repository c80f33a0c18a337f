/*
 * Policy in the head: a source is withdrawn while an old leader is paused.
 *
 * Two operators compile the sources to a policy (1: approved, 2: withdrawn) and write it by
 * compare-and-swap on the head that they read. Property: after the withdrawal is fenced, nothing is issued as public.
 */

#define WRITES 3 /* Writes of the head at most. */
#define APPROVED 1
#define WITHDRAWN 2

unsigned source : 2 = APPROVED;
unsigned sequence : 3;
unsigned policy : 2 = APPROVED;
bool fenced;

typedef Gateway {
    unsigned sequence : 3;
    unsigned digest : 2 = APPROVED; /* The policy that the head names. */
    unsigned loaded : 2 = APPROVED;
    unsigned acknowledged : 3;
};
Gateway gateway;

#define IDLE 0
#define HEAD_READ 1
#define COMPILED 2

proctype Operator(byte me) {
    unsigned phase : 2, cache : 2 = APPROVED, compiled : 2, expected : 3;
    do
    :: d_step { cache != source -> cache = source; printf("operator %d: its watch shows the withdrawal\n", me) }
    :: d_step { phase == IDLE && sequence < WRITES ->
        expected = sequence; phase = HEAD_READ; printf("operator %d: reads head %d\n", me, sequence) }
    :: d_step { phase == HEAD_READ ->
#ifdef POLICY_FROM_CACHE
        compiled = cache;
#else
        compiled = source; /* A quorum LIST, made after that read. */
#endif
        phase = COMPILED; printf("operator %d: compiles policy %d\n", me, compiled) }
    :: d_step { phase == COMPILED ->
        if
        :: expected == sequence && compiled != policy ->
            sequence++; policy = compiled; printf("operator %d: commits head %d with policy %d\n", me, sequence, policy)
        :: else -> printf("operator %d: has nothing to write, or is refused\n", me)
        fi;
        phase = IDLE; compiled = 0; expected = 0 }
    :: d_step { policy == WITHDRAWN && gateway.acknowledged == sequence && !fenced ->
        fenced = true; printf("operator %d: the withdrawal is fenced\n", me) }
    od
}

proctype Rounds() {
    do
    :: d_step { gateway.sequence < sequence ->
        gateway.sequence = sequence; gateway.digest = policy; printf("gateway: reads head %d\n", sequence) }
    :: d_step { gateway.loaded != gateway.digest -> gateway.loaded = gateway.digest; printf("gateway: loads its policy\n") }
#ifdef ISSUES_UNLOADED
    :: d_step { gateway.acknowledged < gateway.sequence ->
#else
    :: d_step { gateway.acknowledged < gateway.sequence && gateway.loaded == gateway.digest ->
#endif
        gateway.acknowledged = gateway.sequence; printf("gateway: acknowledges head %d\n", gateway.sequence) }
#ifdef ISSUES_UNLOADED
    :: d_step { gateway.loaded == APPROVED ->
#else
    :: d_step { gateway.loaded == APPROVED && gateway.loaded == gateway.digest ->
#endif
        printf("gateway: issues a public permit\n"); assert(!fenced) /* no revoked authorization is accepted */ }
    od
}

proctype Owner() { d_step { source = WITHDRAWN; printf("owner: withdraws the source\n") } }

init { atomic { run Operator(1); run Operator(2); run Rounds(); run Owner() } }
