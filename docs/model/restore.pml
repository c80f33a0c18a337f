/*
 * etcd is restored from a snapshot taken before a rollback: witnesses, forks, lineages.
 *
 * Before it, floor x rose from 0 to 1 and was fenced. The snapshot has x at 0. A guard that lived on knows better; it is
 * cut off for a while, its lease is not in the snapshot. The operator may raise another floor, y, under the sequence that
 * x had. Properties: that guard admits nothing below a fenced floor; once a LIST has seen a witness, no floor of the ledger
 * is below it; a floor never falls within a lineage.
 *
 * Clients have permits of the guard's lineage with every pair of floors. Processes that start before the restore is
 * detected cannot know of it, and are left out: the procedure is to run `cachescope restored` before serving.
 */

#ifndef CHANGES
#define CHANGES 2 /* Heads with a floor or a policy of their own that are committed after the restore. */
#endif
#define LINEAGES 2 /* New lineages at most. */

typedef Head {
    unsigned generation : 2; /* Of the lineage. */
    unsigned sequence : 3;
    unsigned branch : 2; /* Which history wrote it, and so its digest: 0 before the restore, 1 after it. */
    unsigned x : 1;
    unsigned y : 1;
    bool deny; /* Latched until a person has confirmed the revocations. */
};
Head ledger, applied, firstRead, secondRead; /* Two reads of the guard can be underway. */
bool firstPending, secondPending;
bool firstGrants, secondGrants; /* Whether a right of their round would still run. */
bool hasRight = true;

/* The guard's lease. Its witness is the highest that it ever knew, whatever its lineage. */
bool leaseWritten;
Head acknowledged;
unsigned witnessX : 1 = 1;
unsigned witnessY : 1;

bool fencedX = true, fencedY;
unsigned changes : 2;
bool confirmed;

inline copy(target, source) {
    target.generation = source.generation; target.sequence = source.sequence; target.branch = source.branch;
    target.x = source.x; target.y = source.y; target.deny = source.deny
}

/* Whether the list of the later head holds the digest of the earlier one; history forked after sequence 1. */
#define LISTS(later, earlier) (later.generation == earlier.generation && later.sequence >= earlier.sequence && \
    (earlier.sequence <= 1 || earlier.generation > 0 || later.branch == earlier.branch))

#ifdef UNORDERED_LINEAGE
#define LATER_LINEAGE(head) (head.generation != applied.generation)
#else
#define LATER_LINEAGE(head) (head.generation > applied.generation)
#endif

/* What the guard makes of a head that it read. A fork, or a head below what it knows, gives no right. */
inline apply(read, grants) {
    if
    :: LATER_LINEAGE(read) || LISTS(read, applied) ->
        copy(applied, read);
        witnessX = witnessX | read.x; witnessY = witnessY | read.y;
        hasRight = hasRight || grants
    :: else -> hasRight = false
    fi;
    printf("guard: applies lineage %d, head %d: x %d, y %d; has a right: %d\n",
        applied.generation, applied.sequence, applied.x, applied.y, hasRight);
    read.generation = 0; read.sequence = 0; read.branch = 0; read.x = 0; read.y = 0; read.deny = false
}

proctype Guard() {
    do
    :: d_step { leaseWritten = true; copy(acknowledged, applied);
        printf("guard: writes its lease: lineage %d, head %d\n", applied.generation, applied.sequence) }
    :: d_step { leaseWritten && !firstPending ->
        firstPending = true; firstGrants = true; copy(firstRead, ledger);
        printf("guard: reads lineage %d, head %d: x %d, y %d\n", ledger.generation, ledger.sequence, ledger.x, ledger.y) }
    :: d_step { leaseWritten && !secondPending ->
        secondPending = true; secondGrants = true; copy(secondRead, ledger);
        printf("guard: reads lineage %d, head %d: x %d, y %d\n", ledger.generation, ledger.sequence, ledger.x, ledger.y) }
    :: d_step { firstPending -> firstPending = false; apply(firstRead, firstGrants); firstGrants = false }
    :: d_step { secondPending -> secondPending = false; apply(secondRead, secondGrants); secondGrants = false }
    :: d_step { hasRight -> hasRight = false; printf("guard: its right ends\n") }
    :: d_step { hasRight && !applied.deny && applied.x == 0 ->
        printf("guard: admits x 0\n"); assert(!fencedX) /* nothing below N is admitted */ }
    :: d_step { hasRight && !applied.deny && applied.y == 0 ->
        printf("guard: admits y 0\n"); assert(!fencedY) /* nothing below N is admitted */ }
    od
}

inline newLineage(mergedX, mergedY, denies) {
    assert(mergedX >= ledger.x && mergedY >= ledger.y); /* no field falls */
    ledger.x = mergedX; ledger.y = mergedY; ledger.deny = ledger.deny || denies;
    ledger.generation++; ledger.sequence++; ledger.branch = 2;
    fencedY = false; /* Fences begin anew in the new lineage. */
    printf("operator: starts lineage %d: x %d, y %d, deny %d\n", ledger.generation, ledger.x, ledger.y, ledger.deny)
}

#ifdef NO_DENY
#define LATCH false
#else
#define LATCH true
#endif
#ifdef NO_MERGE
#define MERGED_X ledger.x
#define MERGED_Y ledger.y
#else
#define MERGED_X (ledger.x | witnessX)
#define MERGED_Y (ledger.y | witnessY)
#endif

#ifdef SEQUENCE_WITHOUT_DIGEST
#define SHOWS_RESTORE (leaseWritten && acknowledged.generation == ledger.generation && \
    acknowledged.sequence > ledger.sequence)
#define ACKNOWLEDGES (leaseWritten && acknowledged.generation == ledger.generation && \
    acknowledged.sequence >= ledger.sequence)
#else
#define SHOWS_RESTORE (leaseWritten && (witnessX > ledger.x || witnessY > ledger.y || \
    (acknowledged.generation == ledger.generation && !LISTS(ledger, acknowledged))))
#define ACKNOWLEDGES (leaseWritten && LISTS(acknowledged, ledger))
#endif

proctype Operator() {
    do
    :: d_step { changes < CHANGES && ledger.sequence < 6 && ledger.y == 0 ->
        changes++; ledger.sequence++; ledger.y = 1; ledger.branch = (ledger.generation -> 2 : 1);
        printf("operator: commits lineage %d, head %d: y 1\n", ledger.generation, ledger.sequence) }
    :: d_step { changes < CHANGES && ledger.sequence < 6 ->
        changes++; ledger.sequence++; ledger.branch = (ledger.generation -> 2 : 1);
        printf("operator: commits lineage %d, head %d\n", ledger.generation, ledger.sequence) }
    /* It settled: a guard without a lease has no right any more. */
    :: d_step { SHOWS_RESTORE && ledger.generation < LINEAGES ->
        newLineage(MERGED_X, MERGED_Y, false) }
    :: d_step { !SHOWS_RESTORE && (leaseWritten || !hasRight) ->
        assert(!leaseWritten || ledger.x >= witnessX); /* no field is below a witness that was seen */
        if
        :: ledger.y && ACKNOWLEDGES -> fencedY = true
        :: ledger.y && !ACKNOWLEDGES && !hasRight -> fencedY = true; firstGrants = false; secondGrants = false /* expired */
        :: else
        fi;
        printf("operator: LIST; y is fenced: %d\n", fencedY) }
    /* It saw a resourceVersion go back, before any witness came: nobody knows what is missing. */
    :: d_step { ledger.generation == 0 && !leaseWritten -> newLineage(ledger.x, ledger.y, LATCH) }
    :: d_step { ledger.deny && !confirmed ->
        confirmed = true; ledger.deny = false; ledger.x = 1; ledger.sequence++;
        printf("person: confirms the revocations\n") }
    od
}

init { atomic {
    ledger.sequence = 1;
    applied.sequence = 2; applied.x = 1;
    run Guard(); run Operator()
} }
