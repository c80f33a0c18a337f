/*
 * The fence of an authorization: permits with an age, `Fresh` without a right, a gateway cut off from the API.
 *
 * A revocation raises the head from 0 to 1. The gateway issues permits with the epoch that it applied; a guard without a
 * right still accepts `Fresh`. Property: after Fenced(1) no request with an authorization of 0 is admitted, and none is
 * being answered.
 *
 * That a lease which was seen unchanged for its length and margin has no right left is proven in lease.pml; writes are
 * committed at once here.
 */

#ifndef ROUNDS
#define ROUNDS 3 /* Rounds that gateway and guard do, together. */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* 1: the operator starts anew, after somebody deleted the leases. */
#endif

/* In ticks. */
#define LEASE 1
#define DRIFT 1 /* What a slow clock adds to a right, and to the age of a permit. */
#define MARGIN 2 /* It exceeds the drift. */
#define MAX_AGE 2 /* Of a permit, by the guard's own tick. */
#define FRESH 2 /* freshSeconds: after them a guard without a right ends a `Fresh` request. */
#define STALE 2 /* maxStaleSeconds: for so long a gateway without a right issues `Fresh`. */

#define LASTS(ticks) ((ticks) + 1) /* Also in the tick in which it ends: the worst of all real times. */

#define NONE 3
#define UNSEEN 15
#define OLDEST (LEASE + MARGIN + STALE)
#define SALTED 0
#define FRESH_KIND 1

typedef Process {
    unsigned phase : 2; /* 0: idle; 1: wrote; 2: read. */
    unsigned sentLeft : 2;
    unsigned rightLeft : 2;
    unsigned applied : 2 = NONE;
    unsigned headRead : 2;
};
Process gateway, guard;
unsigned staleLeft : 2;

typedef Lease {
    bool exists;
    unsigned acknowledged : 2 = NONE;
    unsigned age : 4 = UNSEEN;
};
Lease gatewayLease, guardLease;

typedef Request {
    unsigned epoch : 2 = NONE;
    bool fresh;
    unsigned left : 3; /* Ticks until the permit is too old, or until a `Fresh` request ends. */
};
Request permit, inFlight; /* A permit that is underway, and a request that the guard admitted. */

unsigned head : 1;
bool fenced, waiting, leaseDeleted;
unsigned waitLeft : 3;
unsigned rounds : 3;
unsigned restartsLeft : 1 = RESTARTS;
unsigned settling : 3;

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define LESS(counter) counter = (counter -> counter - 1 : 0)
#define CLEAR_REQUEST(request) request.epoch = NONE; request.fresh = false; request.left = 0

inline write(process, lease) {
    rounds++; process.phase = 1; process.sentLeft = LASTS(LEASE + DRIFT);
    lease.exists = true; lease.acknowledged = process.applied; lease.age = UNSEEN
}

inline readHead(process) { process.headRead = head; process.phase = 2 }

inline grant(process) {
    process.applied = (process.applied == NONE -> process.headRead : MAX(process.applied, process.headRead));
    process.rightLeft = MAX(process.rightLeft, process.sentLeft);
    process.phase = 0; process.sentLeft = 0; process.headRead = 0
}

inline abandon(process) { process.phase = 0; process.sentLeft = 0; process.headRead = 0 }

proctype Gateway() {
    do
    /* After the operator's restart it would find its lease gone, and end. */
    :: d_step { gateway.phase == 0 && rounds < ROUNDS && restartsLeft == RESTARTS ->
        write(gateway, gatewayLease); printf("gateway: writes its lease\n") }
    :: d_step { gateway.phase == 1 -> readHead(gateway); printf("gateway: reads head %d\n", head) }
    :: d_step { gateway.phase == 2 -> grant(gateway);
        staleLeft = (gateway.rightLeft -> STALE : 0); printf("gateway: has a right for %d ticks\n", gateway.rightLeft) }
    :: d_step { gateway.phase -> abandon(gateway); printf("gateway: cannot finish its round\n") }
    :: d_step { gateway.rightLeft && permit.epoch == NONE ->
        permit.epoch = gateway.applied; permit.left = LASTS(MAX_AGE + DRIFT);
        printf("gateway: issues a salted permit of %d\n", permit.epoch) }
    :: d_step { (gateway.rightLeft || staleLeft) && permit.epoch == NONE ->
        permit.epoch = gateway.applied; permit.left = LASTS(MAX_AGE + DRIFT); permit.fresh = true;
        printf("gateway: issues a fresh permit of %d\n", permit.epoch) }
    :: d_step { permit.epoch != NONE -> CLEAR_REQUEST(permit) /* It is never used. */ }
    od
}

inline abortOlder() {
    if
    :: inFlight.epoch != NONE && inFlight.epoch < guard.applied -> CLEAR_REQUEST(inFlight)
    :: else
    fi
}

#ifdef ON_LOSS_DENY
#define ACCEPTS(request) (guard.rightLeft)
#define MAY_HAND_OVER (guard.rightLeft)
#else
#define ACCEPTS(request) (guard.rightLeft || request.fresh)
#define MAY_HAND_OVER (guard.rightLeft || (inFlight.fresh && inFlight.left))
#endif
#define NOT_REVOKED(request) assert(!(fenced && request.epoch < 1))

proctype Guard() {
    do
    :: d_step { guard.phase == 0 && rounds < ROUNDS && !leaseDeleted ->
        write(guard, guardLease); printf("guard: writes its lease\n") }
    /* Its lease is gone: it ends, and is not started again here. */
    :: d_step { guard.phase == 0 && leaseDeleted && guard.applied != NONE ->
        guard.applied = NONE; guard.rightLeft = 0; CLEAR_REQUEST(inFlight); printf("guard: ends\n") }
    :: d_step { guard.phase == 1 -> readHead(guard); printf("guard: reads head %d\n", head) }
    :: d_step { guard.phase == 2 ->
        if
        :: guard.rightLeft == 0 -> CLEAR_REQUEST(inFlight)
        :: else
        fi;
        grant(guard); abortOlder(); printf("guard: has a right for %d ticks\n", guard.rightLeft) }
    :: d_step { guard.phase -> abandon(guard); printf("guard: cannot finish its round\n") }
    :: d_step { permit.epoch != NONE && inFlight.epoch == NONE && guard.applied != NONE &&
        permit.epoch >= guard.applied && ACCEPTS(permit) ->
        printf("guard: admits a request of %d, without reuse: %d\n", permit.epoch, permit.fresh);
        NOT_REVOKED(permit); /* no revoked authorization is accepted */
        inFlight.epoch = permit.epoch; inFlight.fresh = permit.fresh; inFlight.left = LASTS(FRESH); CLEAR_REQUEST(permit) }
    :: d_step { inFlight.epoch != NONE && inFlight.epoch >= guard.applied && MAY_HAND_OVER ->
        printf("guard: hands a message of %d over\n", inFlight.epoch);
        NOT_REVOKED(inFlight) /* no revoked authorization is used */ }
    :: d_step { inFlight.epoch != NONE -> CLEAR_REQUEST(inFlight) }
    od
}

#ifdef STALE_GATEWAY_IGNORED
#define GATEWAY_WAIT (LEASE + MARGIN)
#else
#define GATEWAY_WAIT (LEASE + MARGIN + STALE)
#endif
#define GUARD_WAIT (LEASE + MARGIN)

#ifdef ON_LOSS_DENY
#define PERMITS_WAIT 0
#elif defined(NO_AGE_WAIT)
#define PERMITS_WAIT (FRESH + MARGIN)
#elif defined(NO_FRESH_WAIT)
#define PERMITS_WAIT (MAX_AGE + MARGIN)
#else
#define PERMITS_WAIT (MAX_AGE + FRESH + MARGIN)
#endif

#ifdef LEASELESS_GUARD_IGNORED
#define KNOWN true
#else
#define KNOWN !leaseDeleted /* Whose lease was deleted lost its right, and may still serve `Fresh`. */
#endif

#ifdef SHORT_SETTLING
#define SETTLING (LEASE + MARGIN)
#else
#define SETTLING (LEASE + MARGIN + STALE) /* There can be a gateway of which it knows nothing. */
#endif

#define SEE(lease) lease.age = (lease.exists && lease.age == UNSEEN -> 0 : lease.age)
#define ACKNOWLEDGES(lease) (!lease.exists || (lease.acknowledged != NONE && lease.acknowledged >= head))
#define UNCHANGED(lease, wait) (lease.age != UNSEEN && lease.age >= wait)

inline vanish(lease) { lease.exists = false; lease.acknowledged = NONE; lease.age = UNSEEN }

proctype Operator() {
    do
    :: d_step { head == 0 -> head = 1; printf("operator: commits the revocation\n") }
    :: d_step { true ->
        SEE(gatewayLease); SEE(guardLease);
        if
        :: head && settling == 0 && !fenced && !waiting && (ACKNOWLEDGES(gatewayLease) || UNCHANGED(gatewayLease, GATEWAY_WAIT)) &&
            (ACKNOWLEDGES(guardLease) || UNCHANGED(guardLease, GUARD_WAIT)) ->
            waiting = true;
            waitLeft = (ACKNOWLEDGES(guardLease) && KNOWN -> 0 : PERMITS_WAIT);
            printf("operator: LIST is clear, waits %d ticks more\n", waitLeft)
        :: else -> printf("operator: LIST\n")
        fi }
    :: d_step { guardLease.exists && UNCHANGED(guardLease, GUARD_WAIT) ->
        leaseDeleted = true; vanish(guardLease);
        printf("operator: deletes the guard's expired lease\n") }
    :: d_step { restartsLeft ->
        restartsLeft = 0; leaseDeleted = true; vanish(gatewayLease); vanish(guardLease);
        waiting = false; waitLeft = 0; settling = SETTLING;
        printf("operator: starts anew, and finds no lease\n") }
    :: d_step { waiting && waitLeft == 0 -> waiting = false; fenced = true; printf("operator: Fenced(1)\n") }
    od
}

inline ageLease(lease) { lease.age = (lease.age < OLDEST -> lease.age + 1 : lease.age) }

proctype Time() {
    do
    :: d_step { true ->
        printf("a tick passes\n");
        staleLeft = (gateway.rightLeft == 0 && staleLeft -> staleLeft - 1 : staleLeft);
        LESS(gateway.rightLeft); LESS(gateway.sentLeft); LESS(guard.sentLeft); LESS(waitLeft); LESS(settling);
        ageLease(gatewayLease); ageLease(guardLease);
        LESS(guard.rightLeft); LESS(inFlight.left);
        if
        :: permit.left == 1 -> CLEAR_REQUEST(permit) /* Too old. */
        :: else -> LESS(permit.left)
        fi }
    od
}

init { atomic { run Gateway(); run Guard(); run Operator(); run Time() } }
