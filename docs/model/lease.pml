/*
 * Lease rounds of a guard, and the operator's fence of a pool's cacheEpoch.
 *
 * The guard writes its FenceLease, reads the head, applies it, and has a right from the send of that write. The operator
 * calls head N fenced when the lease acknowledges N or was seen unchanged for its whole length. Property: after
 * Fenced(N) nothing below N is admitted and no message of anything below N is handed over.
 *
 * The guard is one process: after a restart it is another one, with a lease of its own. Permits are left to
 * authorization.pml: here clients have one for every epoch that stood. Several guards are left to joined.pml.
 */

#ifndef ATTEMPTS
#define ATTEMPTS 3 /* Writes that the guard sends at most. */
#endif
#ifndef BUMPS
#define BUMPS 1
#endif
#ifndef FAILOVERS
#define FAILOVERS 1 /* 0 or 1, as the next three. */
#endif
#ifndef DELETES
#define DELETES 1 /* The operator deletes expired leases. */
#endif
#ifndef STRANGERS
#define STRANGERS 1 /* Somebody with more rights than he should have deletes the lease. */
#endif
#ifndef LOWERINGS
#define LOWERINGS 1 /* leaseSeconds is lowered. */
#endif

#define LEASE 2 /* Length of a right, in ticks. */
#define DRIFT 1 /* What a slow clock of the guard adds to it: the longest right is the worst. */
#ifdef NO_MARGIN
#define MARGIN 0
#else
#define MARGIN 1
#endif
#define EXPIRED (LEASE + MARGIN)

#define NONE 15
#define UNSEEN 15 /* Age of a lease that changed since the last LIST. */
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* ---- The API server ---- */

typedef Write {
    unsigned tick : 4; /* 0: nothing is underway. */
    unsigned expected : 4; /* Tick of the version that it replaces; 0 creates. */
    unsigned acknowledged : 4;
    unsigned length : 2;
};
typedef FenceLease {
    bool exists;
    unsigned tick : 4;
    unsigned acknowledged : 4;
    unsigned length : 2;
};
FenceLease lease;
Write current, stray; /* The latest attempt, and an older one that can still arrive. */
unsigned head : 2;
bool drains[BUMPS + 1]; /* Whether head N lets older requests run to their end. */
unsigned specLease : 2 = LEASE;

/* ---- The guard ---- */

#define NOT_STARTED 0
#define IDLE 1
#define SENT 2
#define COMMITTED 3 /* The answer is on its way. */
#define ANSWERED 4
#define READ 5
#define ENDED 6
typedef Guard {
    unsigned phase : 3;
    unsigned attempts : 3;
    bool wrote; /* An answer showed the lease: if it is gone, somebody deleted it. */
    unsigned sentLeft : 3; /* What is left of a right that runs from the send. */
    unsigned rightLeft : 3;
    unsigned applied : 4 = NONE;
    unsigned headRead : 4 = NONE;
    unsigned inFlight : 4 = NONE; /* Epoch of the request in flight. */
    bool draining; /* That request is older than what is applied, and may end by itself. */
    unsigned checked : 4 = NONE; /* Epoch of a message that was checked and not handed over yet. */
};
Guard guard;

/* ---- The operator ---- */

typedef Observed {
    unsigned age : 4 = UNSEEN; /* Ticks for which LISTs showed the same version. */
    unsigned longest : 2; /* Longest lease that was declared. */
    bool vanished; /* The watch showed that it went, and not by the operator's own delete. */
    bool deleting; /* A delete is underway. */
    bool changed; /* The lease is not what that delete was meant for. */
};
Observed observed;
unsigned fenced : 2;
unsigned settling : 3;
bool failoversLeft = FAILOVERS, strangersLeft = STRANGERS;

/* ---- What the guard does ---- */

inline forget() { guard.inFlight = NONE; guard.draining = false; guard.checked = NONE }

inline stop() {
    forget();
    guard.phase = ENDED; guard.rightLeft = 0; guard.sentLeft = 0; guard.applied = NONE; guard.headRead = NONE
}

#ifdef ACK_BEFORE_CLOSING
#define CLOSED guard.applied
#else
#define CLOSED (guard.draining -> guard.inFlight : guard.applied)
#endif

/* A quorum GET of the own lease, then a write that replaces what it showed, with a higher tick. */
inline send() {
    if
    :: guard.wrote && !lease.exists -> printf("guard: its lease is gone, so it ends\n"); stop()
    :: else ->
        if
        :: current.tick ->
            stray.tick = current.tick; stray.expected = current.expected;
            stray.acknowledged = current.acknowledged; stray.length = current.length
        :: else
        fi;
        guard.attempts++;
        current.tick = guard.attempts;
        current.expected = (lease.exists -> lease.tick : 0);
        current.acknowledged = CLOSED;
        current.length = specLease;
        guard.sentLeft = specLease + DRIFT;
        guard.phase = SENT;
        printf("guard: sends write %d\n", current.tick)
    fi
}

inline apply(n) {
    if
    :: guard.inFlight != NONE && guard.inFlight < n ->
        /* Every head since the request's own has to allow it: a later Abort overrides a Drain. */
        guard.draining = drains[n] && (guard.inFlight + 1 == n || drains[n - 1]);
        guard.inFlight = (guard.draining -> guard.inFlight : NONE)
    :: else
    fi;
    guard.applied = n;
    printf("guard: applies head %d\n", n)
}

#define NEWER(n) (guard.applied == NONE || guard.applied < n)

inline applyNewer(n) {
    if
    :: NEWER(n) -> apply(n)
    :: else
    fi
}

/* A right that had ended takes everything with it that rested on it. */
inline grant() {
    if
#ifndef DRAIN_ACROSS_GAP
    :: guard.rightLeft == 0 -> forget()
#endif
    :: else
    fi;
    guard.rightLeft = MAX(guard.rightLeft, guard.sentLeft);
    guard.phase = IDLE; guard.headRead = NONE; guard.sentLeft = 0;
    printf("guard: has a right for %d ticks\n", guard.rightLeft)
}

#define MAY_SEND (guard.attempts < ATTEMPTS)
#define FULL (specLease + DRIFT)
#define MAY_HAND_OVER \
    (guard.rightLeft > 0 && guard.inFlight != NONE && (guard.inFlight >= guard.applied || guard.draining))

proctype Rounds() {
    do
    :: d_step { guard.phase == NOT_STARTED -> guard.phase = IDLE }
#ifdef READ_BEFORE_WRITE
    :: d_step { guard.phase == IDLE && MAY_SEND && guard.headRead == NONE ->
        guard.headRead = head; printf("guard: reads head %d\n", head); applyNewer(head) }
    :: d_step { guard.phase == IDLE && guard.headRead != NONE -> send() }
    :: d_step { guard.phase == ANSWERED -> grant() }
#else
    :: d_step { guard.phase == IDLE && MAY_SEND -> send() }
    :: d_step { guard.phase == ANSWERED ->
        guard.headRead = head; guard.phase = READ;
#ifdef RIGHT_FROM_READ
        guard.sentLeft = FULL;
#endif
        printf("guard: reads head %d\n", head) }
    :: d_step { guard.phase == READ -> applyNewer(guard.headRead); grant() }
#endif
#ifdef IDENTICAL_RETRY
    :: d_step { (guard.phase == SENT || guard.phase == COMMITTED) && guard.sentLeft < FULL ->
        guard.phase = SENT; current.tick = guard.attempts; guard.sentLeft = FULL;
        printf("guard: sends write %d again\n", guard.attempts) }
#else
    :: d_step { (guard.phase == SENT || guard.phase == COMMITTED) && MAY_SEND -> send() /* The answer is lost, or late. */ }
#endif
    :: d_step { guard.phase == COMMITTED ->
        guard.phase = ANSWERED; guard.wrote = true;
#ifdef RIGHT_FROM_ANSWER
        guard.sentLeft = FULL;
#endif
        printf("guard: has the answer\n") }
    :: d_step { guard.applied != NONE && guard.applied < head -> apply(head) /* A watch is a hint. */ }
    :: d_step { guard.phase != NOT_STARTED && guard.phase != ENDED -> stop(); printf("guard: ends\n") }
    od
}

proctype Requests() {
    do
    :: atomic { guard.rightLeft > 0 && guard.inFlight == NONE ->
        guard.inFlight = guard.applied;
        do
        :: guard.inFlight < head -> guard.inFlight++
        :: break
        od;
        printf("guard: admits a request of epoch %d\n", guard.inFlight);
        assert(guard.inFlight >= fenced) /* nothing below N is admitted */ }
#ifdef SPLIT_CHECK
    :: d_step { MAY_HAND_OVER && guard.checked == NONE ->
        guard.checked = guard.inFlight; printf("guard: checks a message of epoch %d\n", guard.checked) }
    :: d_step { guard.checked != NONE ->
        printf("guard: hands it over\n");
        assert(guard.checked >= fenced); /* no message below N is handed over */
        guard.checked = NONE }
#else
    :: d_step { MAY_HAND_OVER ->
        printf("guard: hands a message of epoch %d over\n", guard.inFlight);
        assert(guard.inFlight >= fenced) /* no message below N is handed over */ }
#endif
    :: d_step { guard.inFlight != NONE -> guard.inFlight = NONE; guard.draining = false }
    od
}

/* ---- What the API server does ---- */

/* A write is committed if it replaces the version that it names. */
inline arrive(write) {
    if
#ifdef IDENTICAL_RETRY
    :: lease.exists && lease.tick == write.tick -> printf("API: write %d changes nothing\n", write.tick)
#endif
    :: (lease.exists -> write.expected == lease.tick : write.expected == 0) ->
        lease.exists = true; lease.tick = write.tick;
        lease.acknowledged = write.acknowledged; lease.length = write.length;
        observed.age = UNSEEN;
        observed.changed = observed.deleting;
#ifdef LATEST_LEASE
        observed.longest = write.length;
#else
        observed.longest = MAX(observed.longest, write.length);
#endif
        printf("API: commits write %d, which acknowledges %d (15: nothing)\n", write.tick, write.acknowledged)
    :: else -> printf("API: refuses write %d\n", write.tick); write.tick = NONE
    fi;
    if
    :: write.tick == guard.attempts && guard.phase == SENT -> guard.phase = COMMITTED
    :: else
    fi;
    write.tick = 0; write.expected = 0; write.acknowledged = 0; write.length = 0
}

inline vanish() {
    lease.exists = false; lease.tick = 0; lease.acknowledged = 0; lease.length = 0;
    observed.age = UNSEEN
}

proctype ApiServer() {
    do
    :: d_step { current.tick -> arrive(current) }
    :: d_step { stray.tick -> arrive(stray) }
    :: d_step { observed.deleting && lease.exists ->
        if
#ifndef BLIND_DELETE
        :: observed.changed -> printf("API: refuses the operator's delete\n")
#endif
        :: else -> vanish(); observed.vanished = false; printf("API: the operator's delete is done\n")
        fi;
        observed.deleting = false; observed.changed = false }
    :: d_step { lease.exists && strangersLeft ->
        strangersLeft = false; vanish();
#ifndef VANISHED_IS_FENCED
        observed.vanished = true;
#endif
        observed.changed = observed.deleting;
        printf("stranger: deletes the lease\n") }
    od
}

/* ---- What the operator does ---- */

#ifdef SPEC_LEASE
#define WAIT (specLease + MARGIN)
#else
#define WAIT (observed.longest + MARGIN)
#endif
#if defined(NO_SETTLING) || defined(FAILOVER_KEEPS_CLOCK)
#define SETTLING 0
#elif defined(SETTLES_SPEC_LEASE)
#define SETTLING (specLease + MARGIN)
#else
#define SETTLING EXPIRED
#endif

#define COUNTS (lease.exists || observed.vanished)
#define ACKNOWLEDGES(n) (lease.exists && lease.acknowledged != NONE && lease.acknowledged >= n)
#define UNCHANGED (observed.age != UNSEEN && observed.age >= WAIT)
#define CLEAR(n) (!COUNTS || ACKNOWLEDGES(n) || UNCHANGED)

proctype Operator() {
    do
    :: d_step { head < BUMPS -> head++; printf("operator: commits head %d\n", head) }
    :: d_step { head < BUMPS -> head++; drains[head] = true; printf("operator: commits head %d, Drain\n", head) }
    :: d_step { true ->
        printf("operator: LIST\n");
        observed.age = (COUNTS && observed.age == UNSEEN -> 0 : observed.age);
        if
        :: settling == 0 && head > fenced && CLEAR(head) -> fenced = head; printf("operator: Fenced(%d)\n", fenced)
        :: else
        fi }
    :: d_step { DELETES && lease.exists && UNCHANGED && !observed.deleting ->
        observed.deleting = true; observed.changed = false; printf("operator: sends a delete of the lease\n") }
    :: d_step { failoversLeft ->
        failoversLeft = false;
        settling = SETTLING;
#ifdef FAILOVER_KEEPS_CLOCK
        observed.age = EXPIRED; /* "First seen at" was noted by another machine's clock. */
#else
        observed.vanished = false; observed.longest = lease.length; observed.age = UNSEEN;
#endif
        printf("operator: another one takes over\n") }
    :: d_step { LOWERINGS && specLease == LEASE -> specLease = LEASE - 1; printf("user: lowers leaseSeconds\n") }
    od
}

#define LESS(counter) counter = (counter -> counter - 1 : 0)

proctype Time() {
    do
    :: d_step { true ->
        LESS(settling); LESS(guard.rightLeft); LESS(guard.sentLeft);
        observed.age = (observed.age < EXPIRED -> observed.age + 1 : observed.age);
        printf("a tick passes\n") }
    od
}

init { atomic { run Rounds(); run Requests(); run ApiServer(); run Operator(); run Time() } }
