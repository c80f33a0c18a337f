/*
 * All together: two guards, one gateway, one operator with a failover, two changes of the ledger, one restore of etcd.
 *
 * There are two floors, x and y, and two changes, each of which raises one from 0 to 1. etcd can be restored once, to the
 * time before both and before all leases; the operator starts anew with it. Property: after the fence of a floor nothing
 * below it is admitted, and no message of anything below it is handed over. What was fenced before a restore holds for
 * the guards that knew of it, and for all once it is fenced anew: nobody else can know before the restore is detected.
 *
 * The parts are finer in the other models. Here a write is committed at once, what is read is applied at once, requests
 * are always aborted, and the operator sees everything at once, which is the worst that it can do. All permits are
 * `Fresh`, since a salted one is issued and accepted in fewer states.
 */

#ifndef ROUNDS
#define ROUNDS 4 /* Rounds that all processes begin, together. */
#endif

/* In ticks. Clocks do not drift here, so nothing needs a margin. */
#define LEASE 1
#define MAX_AGE 1
#define FRESH 1
#define STALE 1
#define GATEWAY_WAIT (LEASE + STALE)
#define PERMITS_WAIT (MAX_AGE + FRESH)
#define SETTLING (LEASE + STALE)

/* A head is four bits: its floors, the branch of history after the snapshot, the generation of its lineage. */
#define X 1
#define Y 2
#define BRANCH 4
#define GENERATION 8
#define FLOORS(head) ((head) & (X | Y))
#define SEQUENCE(head) (((head) & X) + (((head) & Y) >> 1))
#define SAME(a, b, bits) (((a) & (bits)) == ((b) & (bits)))
#define LISTS(later, earlier) (SAME(later, earlier, GENERATION) && SEQUENCE(later) >= SEQUENCE(earlier) && \
    (FLOORS(earlier) == 0 || SAME(later, earlier, BRANCH)))
#define BELOW(a, b) ((FLOORS(b) & (3 - FLOORS(a))) != 0)

#define NONE 16 /* No head: nothing was read yet. */
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define LESS(counter) counter = (counter -> counter - 1 : 0)

#define GATEWAY 2
typedef Process {
    bool wrote; /* It is between the write and the read of a round. */
    bool boots; /* Its lease is gone: it goes on under a new name. */
    unsigned sentLeft : 2;
    unsigned rightLeft : 2;
    unsigned applied : 5 = NONE;
    unsigned knew : 2; /* Every floor that it ever applied. */
};
typedef Lease {
    bool exists;
    unsigned acknowledged : 5 = NONE;
    unsigned age : 2; /* Ticks for which it was unchanged. */
};
typedef Request {
    unsigned head : 5 = NONE; /* The floors of its permit. */
    unsigned left : 2; /* Ticks until the permit is too old, or until freshSeconds are over. */
};
Process processes[3]; /* Two guards, and the gateway. */
Lease leases[3];
Request inFlight[2], permit;
unsigned staleLeft : 1;

unsigned ledger : 4;
unsigned branch : 3; /* BRANCH after the restore, in its lineage. */
unsigned fenced : 2;
unsigned fencedBefore : 2; /* Before the restore. */
unsigned waitingFor : 5 = NONE;
unsigned waitLeft : 2;
unsigned settling : 3;
unsigned changesLeft : 2 = 2;
unsigned rounds : 4;
bool failoverLeft = true, restoreLeft = true;

#define CLEAR_REQUEST(request) request.head = NONE; request.left = 0

/* ---- Rounds ---- */

inline write(p) {
    rounds++;
    processes[p].wrote = true; processes[p].boots = false; processes[p].sentLeft = LEASE;
    leases[p].exists = true; leases[p].acknowledged = processes[p].applied; leases[p].age = 0;
    printf("process %d: writes its lease, with head %d (16: none)\n", p, processes[p].applied)
}

#define FOLLOWS(p) (processes[p].applied == NONE || LISTS(ledger, processes[p].applied) || \
    (ledger & GENERATION) > (processes[p].applied & GENERATION))
#ifdef NO_FORK_CHECK
#define TAKES(p) true
#elif defined(LINEAGE_TAKEN_WHOLE)
#define TAKES(p) FOLLOWS(p)
#else
#define TAKES(p) (FOLLOWS(p) && !BELOW(ledger, processes[p].knew))
#endif

/* A fork, and a lineage that has not yet all that this process knows, give no right. Nothing is served before the first. */
inline readAndApply(p) {
    if
    :: processes[p].applied == NONE && processes[p].sentLeft == 0 -> skip
    :: !(processes[p].applied == NONE && processes[p].sentLeft == 0) && TAKES(p) ->
        processes[p].applied = ledger;
        processes[p].knew = processes[p].knew | FLOORS(ledger);
        processes[p].rightLeft = MAX(processes[p].rightLeft, processes[p].sentLeft)
    :: else -> processes[p].rightLeft = 0
    fi;
    processes[p].wrote = false; processes[p].sentLeft = 0;
    printf("process %d: reads head %d, has a right for %d ticks\n", p, ledger, processes[p].rightLeft)
}

#define OUTDATED(g) (inFlight[g].head != NONE && (!SAME(inFlight[g].head, processes[g].applied, GENERATION) || \
    BELOW(inFlight[g].head, processes[g].applied)))
/* Which guard starts first is only a name. */
#define FIRST_STARTED (leases[0].exists || processes[0].boots)
#define PROMISED(g) (fenced | (fencedBefore & processes[g].knew))

proctype Guard(byte g) {
    do
    :: d_step { !processes[g].wrote && !processes[g].boots && rounds < ROUNDS && (g == 0 || FIRST_STARTED) -> write(g) }
    :: d_step { processes[g].wrote ->
        if
        :: processes[g].rightLeft == 0 -> CLEAR_REQUEST(inFlight[g]) /* What rested on a right that ended. */
        :: else
        fi;
        readAndApply(g);
        if
        :: OUTDATED(g) -> CLEAR_REQUEST(inFlight[g])
        :: else
        fi }
    :: d_step { processes[g].boots && rounds < ROUNDS -> processes[g].rightLeft = 0; CLEAR_REQUEST(inFlight[g]); write(g) }
    :: d_step { permit.head != NONE && inFlight[g].head == NONE && processes[g].applied != NONE &&
        SAME(permit.head, processes[g].applied, GENERATION) && !BELOW(permit.head, processes[g].applied) ->
        printf("guard %d: admits a request with head %d\n", g, permit.head);
        assert(!BELOW(permit.head, PROMISED(g))); /* nothing below N is admitted */
        inFlight[g].head = permit.head; inFlight[g].left = FRESH; CLEAR_REQUEST(permit) }
    :: d_step { inFlight[g].head != NONE && (processes[g].rightLeft || inFlight[g].left) ->
        printf("guard %d: hands a message of head %d over\n", g, inFlight[g].head);
        assert(!BELOW(inFlight[g].head, PROMISED(g))) /* no message below N is handed over */ }
    :: d_step { inFlight[g].head != NONE -> CLEAR_REQUEST(inFlight[g]) }
    od
}

proctype Gateway() {
    do
    :: d_step { !processes[GATEWAY].wrote && !processes[GATEWAY].boots && rounds < ROUNDS -> write(GATEWAY) }
    :: d_step { processes[GATEWAY].wrote -> readAndApply(GATEWAY); staleLeft = (processes[GATEWAY].rightLeft -> STALE : 0) }
    :: d_step { processes[GATEWAY].boots && rounds < ROUNDS -> processes[GATEWAY].rightLeft = 0; staleLeft = 0; write(GATEWAY) }
    :: d_step { (processes[GATEWAY].rightLeft || staleLeft) && permit.head == NONE ->
        permit.head = processes[GATEWAY].applied; permit.left = MAX_AGE;
        printf("gateway: issues a permit with head %d\n", permit.head) }
    od
}

/* ---- The operator ---- */

#define COUNTS_FOR(head, n) (head != NONE && LISTS(head, n))
#define SHOWS_RESTORE(p) (leases[p].exists && leases[p].acknowledged != NONE && (BELOW(ledger, leases[p].acknowledged) || \
    (SAME(leases[p].acknowledged, ledger, GENERATION) && !LISTS(ledger, leases[p].acknowledged))))
#define WITNESS(p) (leases[p].exists && leases[p].acknowledged != NONE -> FLOORS(leases[p].acknowledged) : 0)
#define ACKNOWLEDGES(p) (!leases[p].exists || COUNTS_FOR(leases[p].acknowledged, ledger))
#ifdef LEASELESS_GUARD_IGNORED
#define HAS_LEASE(p) true
#else
#define HAS_LEASE(p) leases[p].exists /* A guard without one has no right, and may serve `Fresh`. */
#endif
#define CLEAR(p, wait) (ACKNOWLEDGES(p) || leases[p].age >= wait)

inline forgetAges() {
    leases[0].age = 0; leases[1].age = 0; leases[2].age = 0;
    waitingFor = NONE; waitLeft = 0; settling = SETTLING
}

inline wipe(p) {
    processes[p].boots = leases[p].exists; leases[p].exists = false; leases[p].acknowledged = NONE
}

proctype Operator() {
    do
    :: d_step { changesLeft && !(ledger & X) ->
        changesLeft--; ledger = ledger | X | branch; printf("operator: commits head %d\n", ledger) }
    :: d_step { changesLeft && !(ledger & Y) && (ledger & X || !restoreLeft) /* Which comes first is only a name. */ ->
        changesLeft--; ledger = ledger | Y | branch; printf("operator: commits head %d\n", ledger) }
    :: d_step { SHOWS_RESTORE(0) || SHOWS_RESTORE(1) || SHOWS_RESTORE(2) ->
        ledger = GENERATION | FLOORS(ledger) | WITNESS(0) | WITNESS(1) | WITNESS(2); branch = 0;
        waitingFor = NONE; waitLeft = 0;
        printf("operator: LIST shows a restore; head %d\n", ledger) }
    :: d_step { settling == 0 && waitingFor == NONE && BELOW(fenced, ledger) &&
        !SHOWS_RESTORE(0) && !SHOWS_RESTORE(1) && !SHOWS_RESTORE(2) &&
        CLEAR(0, LEASE) && CLEAR(1, LEASE) && CLEAR(GATEWAY, GATEWAY_WAIT) ->
        waitingFor = ledger;
        waitLeft = (ACKNOWLEDGES(0) && ACKNOWLEDGES(1) && HAS_LEASE(0) && HAS_LEASE(1) -> 0 : PERMITS_WAIT);
        printf("operator: LIST is clear, waits %d ticks more\n", waitLeft) }
    :: d_step { waitingFor != NONE && waitLeft == 0 ->
        fenced = fenced | FLOORS(waitingFor); waitingFor = NONE; printf("operator: fenced floors are %d\n", fenced) }
    :: d_step { failoverLeft -> failoverLeft = false; forgetAges(); printf("operator: another one takes over\n") }
    :: d_step { restoreLeft && ledger ->
        restoreLeft = false; ledger = 0; branch = BRANCH; fencedBefore = fenced; fenced = 0;
        wipe(0); wipe(1); wipe(2); forgetAges(); printf("etcd: is restored\n") }
    od
}

/* ---- Time ---- */

inline pass(p) {
    LESS(processes[p].sentLeft); LESS(processes[p].rightLeft);
    leases[p].age = (leases[p].age < GATEWAY_WAIT -> leases[p].age + 1 : leases[p].age)
}

proctype Time() {
    do
    :: d_step { true ->
        printf("a tick passes\n");
        staleLeft = (processes[GATEWAY].rightLeft == 0 -> 0 : staleLeft);
        pass(0); pass(1); pass(2);
        LESS(inFlight[0].left); LESS(inFlight[1].left); LESS(waitLeft); LESS(settling);
        if
        :: permit.left == 1 -> CLEAR_REQUEST(permit) /* Too old. */
        :: else -> LESS(permit.left)
        fi }
    od
}

init { atomic { run Guard(0); run Guard(1); run Gateway(); run Operator(); run Time() } }
