/*
 * Writes of the ledger: shard and head, incidents, folding; and what a gateway makes of them.
 *
 * An incident raises the floor of one target from 0 to 1. The operator writes the shard, then a head that announces it;
 * after the fence the change leaves the head, later the floor is folded into `base` and its entry leaves the shard. Two
 * operators run at once, the older of which can pause between any two steps. Properties: no field falls; an incident
 * advances its target once; after the fence of the incident no permit with a floor of 0 is issued and no message of a
 * request with one is handed over.
 *
 * Expiry is left to lease.pml: here every process acknowledges, or is waited for.
 */

#ifndef WRITES
#define WRITES 4 /* Writes of the head at most. */
#endif
#ifndef STARTS
#define STARTS 2 /* Gateway processes, one after the other. */
#endif

typedef Shard {
    unsigned sequence : 3;
    unsigned entry : 2; /* Floor of the target; 0: it has none of its own. */
    unsigned base : 2;
    bool incidentDone;
};
Shard shard, cached; /* As stored, and as an old cache of the API server still shows it. */

typedef Head {
    unsigned sequence : 3;
    unsigned base : 2;
    unsigned change : 2; /* Floor of the target among the latest changes; 0: it is not among them. */
    unsigned shardSequence : 3;
    bool incidentDone;
};
Head head;

unsigned incidentAt : 3; /* Sequence of the head that announced the incident. */
unsigned foldedAt : 3; /* Sequence of the head that raised `base`. */
bool fenced, folded; /* The fences of these two. */

#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* ---- Operators ---- */

#define IDLE 0
#define HEAD_READ 1

#define FLOOR_BEFORE MAX(head.base, shard.entry)

inline writeShard(newEntry, newBase) {
    cached.sequence = shard.sequence; cached.entry = shard.entry; cached.base = shard.base;
    cached.incidentDone = shard.incidentDone;
    assert(MAX(head.base, newEntry) >= FLOOR_BEFORE); /* no field falls */
    assert(newEntry <= 1); /* one advance per incident */
    shard.sequence++; shard.entry = newEntry; shard.base = newBase; shard.incidentDone = true;
    printf("operator %d: writes the shard: entry %d, base %d\n", me, shard.entry, shard.base)
}

inline writeHead(newBase, newChange) {
    assert(newBase >= head.base); /* no field falls */
    head.sequence++; head.base = newBase; head.change = newChange;
    head.shardSequence = shard.sequence; head.incidentDone = shard.incidentDone;
    printf("operator %d: commits head %d: base %d, change %d\n", me, head.sequence, newBase, newChange)
}

#define CURRENT (expected == head.sequence && head.sequence < WRITES)
#ifdef ID_DONE_IN_SHARD
#define UNANNOUNCED false /* The id is in the shard, so it takes the incident for done. */
#define INCIDENT_DONE shard.incidentDone
#else
#define UNANNOUNCED (shard.sequence > head.shardSequence)
#define INCIDENT_DONE head.incidentDone
#endif
#ifdef DROP_BEFORE_FENCE
#define MAY_DROP (foldedAt)
#elif defined(DROP_BEFORE_HEAD)
#define MAY_DROP (fenced)
#else
#define MAY_DROP (folded)
#endif
#ifdef TRIM_BEFORE_FENCE
#define MAY_TRIM head.incidentDone
#else
#define MAY_TRIM fenced
#endif

proctype Operator(byte me) {
    unsigned phase : 1, expected : 3, shardExpected : 3;
    bool wroteShard;
    do
    :: d_step { phase == IDLE ->
        expected = head.sequence; shardExpected = shard.sequence; phase = HEAD_READ;
        printf("operator %d: reads head %d\n", me, expected) }
    /* The incident: first the shard. */
    :: d_step { phase == HEAD_READ && expected == head.sequence && shardExpected == shard.sequence && !shard.incidentDone ->
        writeShard(shard.entry + 1, shard.base); shardExpected = shard.sequence; wroteShard = true }
    /* Then a head, for everything in a shard that none has announced, whoever wrote it. */
    :: d_step { phase == HEAD_READ && CURRENT && (UNANNOUNCED || (wroteShard && shard.sequence > head.shardSequence)) ->
        if
        :: head.incidentDone -> writeHead(head.base, head.change)
        :: else -> writeHead(head.base, shard.entry); incidentAt = head.sequence
        fi;
        phase = IDLE; wroteShard = false }
    /* The change leaves the head. */
    :: d_step { phase == HEAD_READ && CURRENT && MAY_TRIM && head.change -> writeHead(head.base, 0); phase = IDLE }
    /* The floor goes into base. */
    :: d_step { phase == HEAD_READ && CURRENT && fenced && head.base == 0 ->
        foldedAt = head.sequence + 1; writeHead(1, head.change); phase = IDLE }
    /* The entry is dropped. The schema lets it go, as the shard's own base is at its floor. */
    :: d_step { phase == HEAD_READ && expected == head.sequence && shardExpected == shard.sequence && MAY_DROP && shard.entry ->
        writeShard(0, 1); shardExpected = shard.sequence; wroteShard = true }
    :: d_step { phase == HEAD_READ -> phase = IDLE; wroteShard = false /* It has nothing to do, or ended. */ }
    od
}

/* ---- Gateway and guard ---- */

typedef Gateway {
    unsigned starts : 2;
    bool hasHead;
    unsigned sequence : 3;
    unsigned base : 2;
    unsigned change : 2;
    unsigned shardSequence : 3; /* What the head names. */
    bool hasShard;
    unsigned loaded : 3; /* Sequence of its shard. */
    unsigned entry : 2;
    unsigned acknowledged : 3; /* In its lease, which it writes before it reads. */
};
Gateway gateway;

inline loadShard(from) {
    gateway.hasShard = true; gateway.loaded = from.sequence;
    /* It never lowers a value: an entry goes only when base has reached it. */
    gateway.entry = (from.entry < gateway.entry && gateway.base < gateway.entry -> gateway.entry : from.entry);
    printf("gateway: loads shard %d: entry %d\n", from.sequence, gateway.entry)
}

#ifdef STALE_SHARD_ACK
#define LOADED (gateway.hasHead && gateway.hasShard)
#else
#define LOADED (gateway.hasHead && gateway.hasShard && gateway.loaded >= gateway.shardSequence)
#endif
#define FLOOR MAX(gateway.base, MAX(gateway.entry, gateway.change))

proctype GatewayProcess() {
    do
    :: d_step { gateway.starts < STARTS ->
        gateway.starts++; gateway.hasHead = false; gateway.hasShard = false; gateway.acknowledged = 0;
        gateway.sequence = 0; gateway.base = 0; gateway.change = 0; gateway.shardSequence = 0;
        gateway.loaded = 0; gateway.entry = 0;
        printf("gateway: starts, and writes its lease\n") }
    :: d_step { gateway.starts && (!gateway.hasHead || gateway.sequence < head.sequence) ->
        gateway.hasHead = true; gateway.sequence = head.sequence; gateway.base = head.base;
        gateway.change = head.change; gateway.shardSequence = head.shardSequence;
        printf("gateway: reads head %d\n", head.sequence) }
    :: d_step { gateway.starts && !gateway.hasShard -> loadShard(cached) }
    :: d_step { gateway.starts && (!gateway.hasShard || gateway.loaded < shard.sequence) -> loadShard(shard) }
    :: d_step { LOADED && gateway.acknowledged < gateway.sequence ->
        gateway.acknowledged = gateway.sequence; printf("gateway: acknowledges head %d\n", gateway.sequence) }
    :: d_step { LOADED ->
        printf("gateway: issues a permit with floor %d\n", FLOOR);
        assert(!fenced || FLOOR > 0) /* no revoked authorization is accepted */ }
    od
}

/* The guard reads heads alone. It has a request of the target from before the incident in flight. */
unsigned guardSequence : 3;
bool guardHolds = true;

proctype Guard() {
    do
    :: d_step { guardSequence < head.sequence ->
        guardSequence = head.sequence; guardHolds = guardHolds && MAX(head.base, head.change) == 0;
        printf("guard: applies and acknowledges head %d\n", head.sequence) }
    :: d_step { guardHolds -> printf("guard: hands a message over\n"); assert(!fenced) /* no revoked authorization is used */ }
    od
}

/* ---- The fences ---- */

#define REACHED(sequence) (guardSequence >= sequence && (gateway.starts == 0 || gateway.acknowledged >= sequence))

proctype Fences() {
    do
#ifdef ID_DONE_IN_SHARD
    :: d_step { INCIDENT_DONE && !fenced && REACHED(head.sequence) -> fenced = true; printf("operator: the incident is fenced\n") }
#else
    :: d_step { INCIDENT_DONE && !fenced && REACHED(incidentAt) -> fenced = true; printf("operator: the incident is fenced\n") }
#endif
    :: d_step { foldedAt && !folded && REACHED(foldedAt) -> folded = true; printf("operator: base is fenced\n") }
    od
}

init { atomic { run Operator(1); run Operator(2); run GatewayProcess(); run Guard(); run Fences() } }
