//! The memory of a call for exchanges as columns: its inputs, its rows and the texts that they share.
//!
//! `kafkasniff/native/columns.py` has the same structures.

const calls = @import("call.zig");
const columns = @import("columns.zig");
const feed = @import("feed_found.zig");
const NameTable = @import("names.zig").Names;
const problems_of = @import("line_problems.zig");
const reading = @import("reader.zig");
const std = @import("std");

const Error = reading.Error;

/// Added to the index of a topic id that has no name.
pub const UNNAMED: u32 = 1 << 31;
pub const NONE: u32 = 0xFFFF_FFFF;
pub const VALUES = 8;

/// Concatenated texts in Arrow's layout.
pub const Texts = extern struct {
    /// One more entry than there are texts.
    offsets: [*]i32,
    data: [*]u8,
    size: u64,
    used: u64,
};

/// Distinct texts, each stored once.
pub const Names = extern struct {
    texts: Texts,
    /// Indices by hash, NONE for a free slot. The size is a power of two.
    table: [*]u32,
    table_size: u64,
    /// A random number: texts may be chosen to share a place.
    seed: u64,
    count: u64,

    pub fn index(self: *Names, text: []const u8) Error!u32 {
        const mask = self.table_size - 1;
        var at = std.hash.Wyhash.hash(self.seed, text) & mask;
        while (self.table[at] != NONE) : (at = (at + 1) & mask) {
            const found = self.table[at];
            const begin: usize = @intCast(self.texts.offsets[found]);
            const end: usize = @intCast(self.texts.offsets[found + 1]);
            if (std.mem.eql(u8, self.texts.data[begin..end], text)) return found;
        }
        if (self.count >= self.table_size / 2 or text.len > self.texts.size - self.texts.used) return error.NoRoom;
        const made: u32 = @intCast(self.count);
        @memcpy(self.texts.data[self.texts.used..][0..text.len], text);
        self.texts.used += text.len;
        self.count += 1;
        self.texts.offsets[self.count] = @intCast(self.texts.used);
        self.table[at] = made;
        return made;
    }
};

/// Whether bodies of a kind are wanted as text (`kafkasniff/engine/roles.py`).
pub const Wanted = enum(u8) { never, always, with_errors, _ };

/// Two messages, by their indices. `response` may be NONE: then the row is about the request alone.
pub const Pair = extern struct { request: u32, response: u32 };

pub const Row = extern struct {
    /// Index of the pair.
    pair: u64,
    /// Number of records in all partitions; see `has`.
    records: i64,
    /// Numbers of both messages, see `Role`.
    values: [VALUES]i64,
    has: packed struct(u32) {
        records: bool = false,
        throttle: bool = false,
        /// The request names more than one group or transactional id; then the row has none of them.
        groups: bool = false,
        transactions: bool = false,
        rest: u28 = 0,
    },
    throttle: i32,
    /// The first error code, and the number of error codes of this row.
    code: i32,
    codes: u32,
    // Indices of names
    client_id: u32,
    group: u32,
    transaction: u32,
    asked_member: u32,
    given_member: u32,
    // Numbers of entries that belong to this row
    topics: u32,
    partitions: u32,
    batches: u32,
    // How many of them are in the request
    asked_topics: u32,
    asked_partitions: u32,
    /// The bytes of the response that hold facts; size 0: there are none.
    facts: u32,
    facts_size: u32,
    /// Number of problems of this row.
    problems: u32,
};

pub const Partition = extern struct {
    offset: i64 = 0,
    watermark: i64 = 0,
    stable_offset: i64 = 0,
    records: i64 = 0,
    bytes: i64 = 0,
    /// As `bytes`; the caller adds what compressed batches grow by.
    uncompressed: i64 = 0,
    producer_id: i64 = 0,
    topic: u32,
    partition: i32,
    code: i32 = 0,
    batches: i32 = 0,
    producer_epoch: i32 = 0,
    base_sequence: i32 = 0,
    /// An index in `records.CODECS`, or the number after its end for several codecs.
    codec: i32 = 0,
    has: packed struct(u32) {
        offset: bool = false,
        watermark: bool = false,
        stable_offset: bool = false,
        code: bool = false,
        batches: bool = false,
        codec: bool = false,
        uncompressed: bool = false,
        producer: bool = false,
        rest: u24 = 0,
    } = .{},
    /// NONE: its topic is given by name.
    topic_id: u32,
};

/// Facts that all records of a batch share, in addition to `columns.Batch`.
pub const Shared = extern struct {
    producer_id: i64,
    /// Records that its header states.
    count: i64,
    row: u32,
    partition: i32,
    topic: u32,
    producer_epoch: i32,
    topic_id: u32,
    /// Its partition among those of the call.
    place: u32,
    is_request: u8,
    appended: u8,
    transactional: u8,
    /// An index in `records.CODECS`.
    codec: u8,
    spare: [4]u8 = @splat(0),
};

/// A problem of a body. Its words are a text of `Exchanges.details`.
pub const Reported = extern struct {
    offset: i64,
    /// Bytes that follow the body; negative: it is about something else.
    bytes: i64,
    row: u32,
    /// Its number (`walk_notes.Problem`).
    kind: u16,
    is_request: u8,
    spare: u8 = 0,
};

pub const Exchanges = extern struct {
    found: feed.Messages,
    pairs: [*]const Pair,
    pairs_size: u64,
    /// Programs whose ops have roles, by direction (0 request, 1 response) and code; null: such messages are left to
    /// Python.
    programs: [*]const ?[*]const u8,
    /// Whether bodies are wanted as text, by direction and code as `programs`; null: none are.
    bodies: ?[*]const Wanted,
    call: *calls.Call,
    /// 1: bodies are not decoded.
    headers: u32,
    /// 1: batches of records are wanted.
    records: u32,
    /// 1: the output of the last call, which ended with `asks`, is continued.
    continues: u32,
    /// 1: topic ids without a name are among the topics, marked with `UNNAMED`; else such exchanges are left to Python.
    unnamed: u32 = 0,
    /// Names of topic ids. They are needed by programs with such a role only.
    topic_names: ?*NameTable,
    wordings: problems_of.Wordings,
    /// What problems of bodies need besides, by direction and code as `programs`; null: exchanges with problems are left
    /// to Python.
    careful: ?[*]const problems_of.Careful,
    /// The largest message that is decoded here, in bytes.
    most: u64,
    requests: Texts,
    responses: Texts,
    names: Names,
    rows: [*]Row,
    rows_size: u64,
    topics: [*]u32,
    topics_size: u64,
    partitions: [*]Partition,
    partitions_size: u64,
    batches: [*]columns.Batch,
    shared: [*]Shared,
    batches_size: u64,
    codes: [*]i32,
    codes_size: u64,
    problems: [*]Reported,
    problems_size: u64,
    details: Texts,

    /// The next pair, also a result.
    next: u64,
    // Results
    rows_used: u64,
    topics_used: u64,
    partitions_used: u64,
    batches_used: u64,
    codes_used: u64,
    problems_used: u64,
};
