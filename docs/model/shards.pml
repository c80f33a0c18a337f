/*
 * etcd is restored to between the two writes of an operator: a shard was written, and the head that announces it was not.
 *
 * A gateway follows shards ahead of heads, so that it issued what the restore takes back, and no head tells of that: the head
 * in its lease is the one that was restored. Afterwards operators raise the floor again, write shards in new lineages (a
 * compaction, or a merge that ended before its head) and announce whatever a shard holds, whoever wrote it. Property: under one
 * lineage of the head, which is in every salt, no floor that a gateway issues is below one that it issued before.
 *
 * What heads tell of a restore is left to restore.pml, incidents and folding to ledger.pml.
 */

#define GENERATIONS 3 /* Of the shard, at most; a generation is a lineage. */
#define HEADS 4 /* Writes of one lineage of the head at most. */
#define HIGHEST 3

typedef Shard {
    unsigned generation : 2;
    unsigned sequence : 3;
    bool branch; /* Which history wrote it, and so its digest: after the restore it is another one. */
    unsigned floor : 2;
};
Shard shard, held, announced, known; /* As stored; as the gateway holds it; and as the heads of both name it. */

unsigned headGeneration : 1, headSequence : 3 = 1;
unsigned knownGeneration : 1, knownSequence : 3 = 1; /* The head of the gateway. */
bool restored;

inline copy(target, source) {
    target.generation = source.generation; target.sequence = source.sequence; target.branch = source.branch;
    target.floor = source.floor
}

/* Whether the list of the later shard holds the digest of the earlier one; history forked after sequence 1. */
#define LISTS(later, earlier) (later.generation == earlier.generation && later.sequence >= earlier.sequence && \
    (earlier.sequence <= 1 || earlier.generation > 0 || later.branch == earlier.branch))

/* ---- The gateway ---- */

bool used[2]; /* Whether it issued under that lineage of the head, */
unsigned issued0 : 2, issued1 : 2; /* and what it issued last. */
bool told; /* Its lease says that its shard was taken back. */

#ifdef SHARD_TAKEN_WHOLE
#define LACKS false
#else
#define LACKS (used[knownGeneration] && shard.floor < held.floor)
#endif

#define ISSUES LISTS(held, known)

proctype Gateway() {
    do
    :: d_step { headGeneration > knownGeneration || (headGeneration == knownGeneration && headSequence > knownSequence) ->
        knownGeneration = headGeneration; knownSequence = headSequence; copy(known, announced);
        printf("gateway: reads lineage %d, head %d: shard %d.%d\n", headGeneration, headSequence, known.generation, known.sequence) }
    /* The watch shows a shard that follows. */
    :: d_step { shard.sequence > held.sequence && LISTS(shard, held) ->
        copy(held, shard); told = false; printf("gateway: sees shard %d.%d: floor %d\n", held.generation, held.sequence, held.floor) }
    /* A round reads what its head names and it does not hold; another lineage waits for a head that names it. */
    :: d_step { !ISSUES && (shard.generation == held.generation || shard.generation == known.generation) ->
        if
        :: LISTS(shard, held) || (shard.generation > held.generation && !LACKS) ->
            copy(held, shard); told = false
        :: else -> told = true
        fi;
        printf("gateway: reads shard %d.%d: holds floor %d, tells of a loss: %d\n", shard.generation, shard.sequence, held.floor, told) }
    :: d_step { ISSUES && knownGeneration == 0 ->
        printf("gateway: issues floor %d in lineage 0\n", held.floor);
        assert(held.floor >= issued0); /* no field falls */
        issued0 = held.floor; used[0] = true }
    :: d_step { ISSUES && knownGeneration == 1 ->
        printf("gateway: issues floor %d in lineage 1\n", held.floor);
        assert(held.floor >= issued1); /* no field falls */
        issued1 = held.floor; used[1] = true }
    od
}

/* ---- Operators ---- */

bool merging; /* The shard of a merge is written, and its head is not. */

inline another() {
    shard.generation++; shard.sequence = 1; shard.branch = restored;
    printf("operator: writes the shard in lineage %d: floor %d\n", shard.generation, shard.floor)
}

inline announce() {
    copy(announced, shard);
    printf("operator: commits lineage %d, head %d: shard %d.%d\n", headGeneration, headSequence, shard.generation, shard.sequence)
}

proctype Operator() {
    do
    :: d_step { shard.floor < HIGHEST && shard.sequence < 7 && !merging ->
        shard.sequence++; shard.floor++; shard.branch = restored;
        printf("operator: writes shard %d.%d: floor %d\n", shard.generation, shard.sequence, shard.floor) }
    :: d_step { !LISTS(announced, shard) && !merging && headSequence < HEADS -> headSequence++; announce() }
    :: d_step { shard.generation < GENERATIONS && !merging -> another() }
    /* A lease tells of the loss: a merge. Its operator may end before the head, and another one announces the shard. */
    :: d_step { told && !merging && headGeneration == 0 && shard.generation < GENERATIONS -> another(); merging = true }
    :: d_step { merging -> headGeneration = 1; headSequence = 1; announce(); merging = false }
    :: d_step { merging -> merging = false; printf("operator: ends before the head\n") }
    od
}

proctype Restore() {
    d_step { headGeneration == 0 && headSequence == 1 && shard.generation == 0 ->
        restored = true; shard.sequence = 1; shard.floor = 0; shard.branch = false;
        printf("etcd: restored to before the shard was written\n") }
}

init { atomic {
    shard.sequence = 1; held.sequence = 1; announced.sequence = 1; known.sequence = 1;
    run Gateway(); run Operator(); run Restore()
} }
