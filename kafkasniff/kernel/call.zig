//! What a caller hands over, and what it gets back. `kafkasniff/native/calls.py` has the same structures.

const Form = @import("json.zig").Form;

/// A batch of compressed records: wanted from the caller, or given by it.
pub const Batch = extern struct {
    /// Place of its first byte in the data.
    /// Of magic 2 the whole batch, else the compressed bytes alone.
    position: u64,
    end: u64,
    codec: u8,
    magic: u8,
    spare: u16 = 0,
    /// Records that its header states.
    count: u32,
    /// Its records, decompressed; the caller's.
    records: ?[*]const u8 = null,
    size: u64 = 0,
};

pub const Records = enum(u2) {
    full = 0,
    /// The batches' headers alone.
    batches = 1,
    /// `null`.
    skip = 2,
    /// As `batches`, each with its place; not in JSON.
    columns = 3,
};

pub const HeaderKind = enum(u8) {
    /// Python has to read it.
    other = 0,
    /// It holds a trace id, which is read here for JSON: the forms of `trace_ids.py`, in their order.
    w3c = 1,
    b3 = 2,
    b3_id = 3,
    jaeger = 4,
    datadog = 5,
    x_ray = 6,
    google = 7,
    _,
};

pub const Kind = enum(u1) { json = 0, pack = 1 };

/// What becomes of keys and values of records, and of fields that are marked as payload, in JSON.
pub const Payload = enum(u2) { shown = 0, dropped = 1, hashed = 2, _ };

pub const Wants = packed struct(u32) {
    form: Form,
    records: Records,
    show_secrets: bool,
    output: Kind,
    payload: Payload,
    /// In MessagePack: `records` fields as JSON.
    json_records: bool,
    rest: u23,
};

/// Bytes of a note in front of its path, in little-endian order: a uint16 that is 0 for an error code and else says which
/// problem it is (`walk.zig`), a uint16 of the path's length, a uint64 of the place in the data, and three int64.
pub const NOTE = 36;

pub const Call = extern struct {
    output: [*]u8,
    output_size: u64,
    /// Error codes and problems of bodies, each of `NOTE` bytes and a path.
    notes: [*]u8,
    notes_size: u64,
    /// Room for batches that are wanted, or those that are given, in the order in which they come.
    batches: [*]Batch,
    batches_size: u64,
    batches_given: u64,
    /// Keys of record headers that say more: a uint8 of the kind (`HeaderKind`), one of the length, and the text, each.
    headers: [*]const u8,
    headers_size: u64,
    /// What keys of records that Python has to read begin with, or have in them: a uint8 of the length and the text, each.
    marks: [*]const u8,
    marks_size: u64,
    /// What hashes of payload are keyed with, and their personalization.
    salt: [*]const u8,
    salt_size: u64,
    person: [16]u8,
    wants: Wants,
    spare: u32,
    /// Where a body is, for `kafkasniff_pack`.
    program: ?[*]const u8,
    start: u64,
    end: u64,
    /// Records and headers that one message may hold; more are Python's to judge.
    max_records: u64,

    // Results
    written: u64,
    notes_written: u64,
    batches_wanted: u64,
    /// Records, or headers of them, whichever are more in each batch.
    records: u64,
    /// Bytes behind the last whole batch of the last `records` field that has such.
    truncated: u64,
    /// Where in the data the body ends.
    after: u64,
    /// 1 where interpreters have to look at records.
    looked_at: u64,
};

/// What the records of a batch count from.
pub const Base = extern struct {
    offset: i64,
    timestamp: i64,
    /// The timestamp of all records, where the broker set it (`appends` is 1).
    append: i64,
    appends: u64,
    /// Bytes of the batch on the wire.
    wire: u64,
};

pub const Status = enum(i32) {
    done = 0,
    odd = 1,
    no_room = 2,
    /// The batches that are wanted have to be decompressed.
    compressed = 3,
    /// The call itself is wrong.
    misuse = 4,
    /// The caller has to say something first (`names.Asks`).
    asks = 5,
};

/// A message of several: `program` and the place are the caller's, the others are results.
pub const Item = extern struct {
    program: ?[*]const u8,
    start: u64,
    end: u64,
    output_end: u64,
    notes_end: u64,
    /// Where in the data the body ends.
    after: u64,
    status: Status,
    records: u32,
    truncated: u32,
    looked_at: u32,
};
