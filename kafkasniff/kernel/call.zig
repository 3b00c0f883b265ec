//! The structures that callers pass in and get back. `kafkasniff/native/library.py` has the same structures.

const Form = @import("json.zig").Form;

/// A batch of compressed records: requested from the caller, or given by it.
pub const Batch = extern struct {
    /// Position of its first byte in the data: the whole batch with magic 2, else only the compressed bytes.
    position: u64,
    end: u64,
    codec: u8,
    magic: u8,
    spare: u16 = 0,
    /// Records that its header states.
    count: u32,
    /// Its decompressed records, in memory of the caller.
    records: ?[*]const u8 = null,
    size: u64 = 0,
};

/// A type of control records at one version of its value.
pub const Control = extern struct {
    /// Its name, which needs no escapes.
    name: [*]const u8,
    name_size: u64,
    /// The program that decodes the value.
    program: [*]const u8,
    type: i16,
    version: i16,
    /// 1: an int16 version comes before the fields, for every version; else the version is the first field.
    fronted: u32,
};

pub const Records = enum(u2) {
    full = 0,
    /// Only the batches' headers.
    batches = 1,
    /// `null`.
    skip = 2,
    /// As `batches`, each with its position; not in JSON.
    columns = 3,
};

pub const HeaderKind = enum(u8) {
    /// Python has to decode it.
    other = 0,
    /// It holds a trace id, which is decoded here for JSON: the forms of `record_facts.py`, in the same order.
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

/// How keys and values of records, and fields marked as payload, appear in JSON.
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

/// Bytes of a note before its path, in little-endian order: a uint16 that is 0 for an error code or the number of a
/// problem (`walk_notes.zig`), a uint16 length of the path, a uint64 position in the data, and three int64.
pub const NOTE = 36;

pub const Call = extern struct {
    output: [*]u8,
    output_size: u64,
    /// Error codes and problems of bodies, each of `NOTE` bytes and a path.
    notes: [*]u8,
    notes_size: u64,
    /// Room for requested batches, or the given batches in the order in which they are used.
    batches: [*]Batch,
    batches_size: u64,
    batches_given: u64,
    /// Keys of record headers with a special meaning. Each entry: a uint8 kind (`HeaderKind`), a uint8 length, the
    /// text.
    headers: [*]const u8,
    headers_size: u64,
    /// Prefixes and substrings of the record keys that Python has to decode. Each entry: a uint8 length, the text.
    marks: [*]const u8,
    marks_size: u64,
    /// Key and personalization of payload hashes.
    salt: [*]const u8,
    salt_size: u64,
    /// How to decode control records. Null: not given yet; the caller does so when `controls_wanted` is 1.
    controls: ?[*]const Control,
    controls_size: u64,
    person: [16]u8,
    wants: Wants,
    spare: u32,
    /// Program and position of a body, for `kafkasniff_pack`.
    program: ?[*]const u8,
    start: u64,
    end: u64,
    /// The most records and headers of one message; a message with more is left to Python.
    max_records: u64,

    // Results
    written: u64,
    notes_written: u64,
    batches_wanted: u64,
    /// The sum over all batches of the number of records or headers, whichever is larger.
    records: u64,
    /// Bytes after the last whole batch, of the last `records` field that has such bytes.
    truncated: u64,
    /// Where in the data the body ends.
    after: u64,
    /// 1: interpreters have to look at records.
    looked_at: u64,
    /// 1: the call ended because `controls` is null.
    controls_wanted: u64,
};

/// The base of a batch, to which the deltas of its records are added.
pub const Base = extern struct {
    offset: i64,
    timestamp: i64,
    /// The timestamp of all records if the broker set it (`appends` is 1).
    append: i64,
    appends: u64,
    /// Bytes of the batch on the wire.
    wire: u64,
};

pub const Status = enum(i32) {
    done = 0,
    odd = 1,
    no_room = 2,
    /// The requested batches have to be decompressed.
    compressed = 3,
    /// The call itself is wrong.
    misuse = 4,
    /// The caller has to answer first (`names.Asks`).
    asks = 5,
};

/// One of several messages: `program`, start and end are set by the caller, the other fields are results.
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
    looked_at: u16,
    /// 1: Python has to build some of it (`pack.Extension`).
    extensions: u16,
};
