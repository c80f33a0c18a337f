/*
 * A fence ends, also when another change follows and when an engine never confirms.
 *
 * Liveness, where the other models are about safety. A guard renews its lease for ever; two changes come. Property: the
 * fence of the first one completes, under weak fairness (no process is starved for ever).
 */

#define WAIT 2 /* LISTs that have to show a lease unchanged: its length and margin. */

unsigned head : 2;
unsigned acknowledged : 2; /* In the lease. */
unsigned applied : 2;
bool written; /* The guard wrote and has not yet applied what it read after that. */
bool changed; /* The lease changed since the last LIST. */
unsigned age : 2;
bool firstFenced;

#ifdef ENGINE_STUCK
#define CONFIRMS(n) (n == 0) /* The engine confirms no abort any more. */
#else
#define CONFIRMS(n) true
#endif

active proctype Guard() {
    do
    :: d_step { !written -> acknowledged = applied; changed = true; written = true }
    :: d_step { written && CONFIRMS(head) -> applied = head; written = false }
#ifdef ROUNDS_GO_ON
    /* It starts another round without having finished the last. */
    :: d_step { written && !CONFIRMS(head) -> written = false }
#endif
    od
}

#ifdef EXACT_HEAD_ONLY
#define CLEAR (acknowledged == 1)
#else
#define CLEAR (acknowledged >= 1) /* The list of a later head holds the digest of the first. */
#endif

active proctype Operator() {
    do
    :: d_step { true ->
        age = (changed -> 0 : (age < WAIT -> age + 1 : age));
        changed = false;
        firstFenced = firstFenced || (head >= 1 && (CLEAR || age >= WAIT)) }
    od
}

active proctype User() {
    head = 1;
    head = 2
}

ltl fence_completes { <> firstFenced }
