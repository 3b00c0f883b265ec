//! Exchanges of `feed.zig` as columns: both bodies as JSON text, the names in them, and the positions of their record
//! batches.
//!
//! The specification is `kafkasniff/tables/rows/exchanges.py` with `kafka/apis/entities.py`. A body is walked twice: as JSON, which finds
//! every problem in it, and for its facts, by the roles of fields. Exchanges with anything more to report are left to
//! Python. `kafkasniff/native/exchanges.py` has the same structures.

const calls = @import("call.zig");
const columns = @import("columns.zig");
const encoding = @import("base64.zig");
const feed = @import("feed_state.zig");
const Fields = @import("fields.zig").Fields;
const isText = @import("text.zig").isText;
const Json = @import("json.zig").Json;
const kindOf = @import("lines.zig").kindOf;
const NameTable = @import("names.zig").Names;
const programs = @import("program.zig");
const reading = @import("reader.zig");
const records = @import("records.zig");
const std = @import("std");
const walking = @import("walk.zig");

const Error = reading.Error;
const Message = feed.Message;
const Op = programs.Op;

pub const NONE: u32 = 0xFFFF_FFFF;
/// Topics and partitions of an exchange, found by linear search; exchanges with more are left to Python.
const MOST = 1024;
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
    count: u64,

    fn index(self: *Names, text: []const u8) Error!u32 {
        const mask = self.table_size - 1;
        var at = std.hash.Wyhash.hash(0, text) & mask;
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
};

pub const Partition = extern struct {
    offset: i64 = 0,
    watermark: i64 = 0,
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
        code: bool = false,
        batches: bool = false,
        codec: bool = false,
        uncompressed: bool = false,
        producer: bool = false,
        rest: u25 = 0,
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

pub const Exchanges = extern struct {
    found: feed.Messages,
    pairs: [*]const Pair,
    pairs_size: u64,
    /// Programs whose ops have roles, by direction (0 request, 1 response) and code; null: such messages are left to
    /// Python.
    programs: [*]const ?[*]const u8,
    call: *calls.Call,
    /// 1: bodies are not decoded.
    headers: u32,
    /// 1: bodies are wanted as text.
    bodies: u32,
    /// 1: batches of records are wanted.
    records: u32,
    /// 1: the output of the last call, which ended with `asks`, is continued.
    continues: u32,
    /// Names of topic ids. They are needed by programs with such a role only.
    topic_names: ?*NameTable,
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

    /// The next pair, also a result.
    next: u64,
    // Results
    rows_used: u64,
    topics_used: u64,
    partitions_used: u64,
    batches_used: u64,
    codes_used: u64,
};

/// The role of a field; `kafkasniff/engine/roles.py` assigns roles to ops.
const Role = enum(u8) {
    none = 0,
    /// Something in this struct has a role.
    inside = 1,
    topic = 2,
    /// As `topic`, but the brokers' own topics are left to Python.
    data_topic = 3,
    group = 4,
    transaction = 5,
    partition = 6,
    /// An array of partitions.
    partitions = 7,
    offset = 8,
    watermark = 9,
    code = 10,
    records = 11,
    member = 12,
    throttle = 13,
    topic_id = 14,
    /// An exchange in which this field is present, or is an array with elements, is left to Python.
    rare = 15,
    /// Facts about brokers: the caller compares their bytes with those that it knows. Exchanges with such fields in
    /// several places are left to Python.
    facts = 16,
    /// Values from here on: numbers that are stored in `Row.values`.
    value = 32,
    _,
};

/// Writes rows from `next` on, after those of the last call only if it asked for names (`names.Asks`).
pub fn run(call: *Exchanges) calls.Status {
    if (!std.math.isPowerOfTwo(call.names.table_size) or call.next > call.pairs_size) return .misuse;
    if (call.continues == 0 and !reset(call)) return .misuse;
    while (call.next < call.pairs_size) : (call.next += 1) {
        if (call.rows_used == call.rows_size) return .no_room;
        const before = .{ call.requests.used, call.responses.used, call.topics_used, call.partitions_used, call.batches_used, call.codes_used };
        exchange(call) catch |reason| {
            call.requests.used, call.responses.used, call.topics_used, call.partitions_used, call.batches_used, call.codes_used = before;
            if (reason == error.NoRoom) return .no_room;
            if (call.topic_names) |names| if (names.isAsking()) return .asks;
            continue;
        };
        call.rows_used += 1;
        call.requests.offsets[call.rows_used] = @intCast(call.requests.used);
        call.responses.offsets[call.rows_used] = @intCast(call.responses.used);
    }
    return .done;
}

/// Starts with no rows. False: the caller's memory is too large.
fn reset(call: *Exchanges) bool {
    inline for (.{ &call.requests, &call.responses, &call.names.texts }) |texts| {
        if (texts.size > std.math.maxInt(i32)) return false;
        texts.used = 0;
        texts.offsets[0] = 0;
    }
    @memset(call.names.table[0..call.names.table_size], NONE);
    call.names.count = 0;
    call.rows_used = 0;
    call.topics_used = 0;
    call.partitions_used = 0;
    call.batches_used = 0;
    call.codes_used = 0;
    return true;
}

fn exchange(call: *Exchanges) Error!void {
    // What a message before asked for must not count for this exchange.
    if (call.topic_names) |names| names.asks = .{};
    const pair = &call.pairs[call.next];
    const is_whole = pair.response != NONE;
    if (pair.request >= call.found.size or (is_whole and pair.response >= call.found.size)) return error.Odd;
    const asked = &call.found.rows[pair.request];
    const data = try call.found.bytes(asked);
    const first_batch = call.batches_used;
    const row = &call.rows[call.rows_used];
    row.* = .{
        .pair = call.next,
        .records = 0,
        .values = @splat(0),
        .has = .{},
        .throttle = 0,
        .code = 0,
        .codes = 0,
        .client_id = NONE,
        .group = NONE,
        .transaction = NONE,
        .asked_member = NONE,
        .given_member = NONE,
        .topics = 0,
        .partitions = 0,
        .batches = 0,
        .asked_topics = 0,
        .asked_partitions = 0,
        .facts = 0,
        .facts_size = 0,
    };
    if (try call.found.clientId(asked)) |text| {
        if (!isText(text)) return error.Odd;
        row.client_id = try call.names.index(text);
    }
    if (call.headers != 0) return;
    const request = try Body.of(call, asked, data);
    _ = try request.json(call, &call.requests, pair.request);
    var facts = Facts{
        .call = call,
        .row = row,
        .fields = .{ .program = request.program, .reader = .{ .bytes = request.data, .at = request.start } },
        .is_request = true,
        .first_topic = call.topics_used,
        .first_partition = call.partitions_used,
    };
    try facts.structure(0, .{});
    row.asked_topics = @intCast(call.topics_used - facts.first_topic);
    row.asked_partitions = @intCast(call.partitions_used - facts.first_partition);
    if (is_whole) {
        const answered = &call.found.rows[pair.response];
        const response = try Body.of(call, answered, try call.found.bytes(answered));
        const noted = try response.json(call, &call.responses, pair.response);
        try codes(call, call.call.notes[0..noted], row);
        facts.fields = .{ .program = response.program, .reader = .{ .bytes = response.data, .at = response.start } };
        facts.is_request = false;
        try facts.structure(0, .{});
    }
    row.topics = @intCast(call.topics_used - facts.first_topic);
    row.partitions = @intCast(call.partitions_used - facts.first_partition);
    row.batches = @intCast(call.batches_used - first_batch);
    row.has.groups = facts.many_groups;
    row.has.transactions = facts.many_transactions;
    if (facts.many_groups) row.group = NONE;
    if (facts.many_transactions) row.transaction = NONE;
    for (call.partitions[facts.first_partition..call.partitions_used]) |*one| {
        if (!one.has.batches) continue;
        row.has.records = true;
        row.records += one.records;
    }
}

/// A body, and the program that decodes it.
const Body = struct {
    program: programs.Program,
    data: []const u8,
    start: usize,

    fn of(call: *const Exchanges, message: *const Message, data: []const u8) Error!Body {
        if (message.flags.tags or message.code >= feed.KEYS * feed.VERSIONS or message.size > call.most) return error.Odd;
        const address = call.programs[kindOf(message)] orelse return error.Odd;
        if (message.body > data.len or message.time == feed.NO_TIME) return error.Odd;
        return .{ .program = programs.Program.at(address), .data = data, .start = message.body };
    }

    /// Appends its JSON to these texts if bodies are wanted. Returns the bytes of its error codes in `Call.notes`.
    fn json(self: *const Body, call: *const Exchanges, into: *Texts, index: u32) Error!usize {
        const message = &call.found.rows[index];
        const one = call.call;
        one.batches_wanted = 0;
        one.batches_given = 0;
        one.records = 0;
        one.truncated = 0;
        one.looked_at = 0;
        var out = Json{ .bytes = into.data[0..into.size], .at = into.used, .form = one.wants.form };
        var walk = walking.Walk(Json).init(one, self.program, self.data, self.start, &out, null);
        if (call.topic_names) |names| {
            names.begin(index, index, true, !message.flags.request);
            // Fetch sessions are added to bodies after the run (`tables/rows/resolve.py`).
            names.answered = index;
            names.session = null;
            walk.names = names;
        }
        const after = try walk.run();
        if (call.topic_names) |names| if (names.isAsking()) return error.Odd;
        if (walk.account.wanting or walk.notes.problems > 0 or after != self.data.len) return error.Odd;
        if (call.bodies != 0) into.used = out.at;
        return walk.notes.used;
    }
};

fn codes(call: *Exchanges, notes: []const u8, row: *Row) Error!void {
    var at: usize = 0;
    while (at < notes.len) {
        const note = notes[at..];
        const code = std.mem.readInt(i32, note[12..16], .little);
        if (at == 0) row.code = code;
        row.codes += 1;
        if (call.codes_used == call.codes_size) return error.NoRoom;
        call.codes[call.codes_used] = code;
        call.codes_used += 1;
        at += calls.NOTE + @as(usize, std.mem.readInt(u16, note[2..4], .little));
    }
}

/// The header of a batch of magic 2.
const Header = struct {
    codec: i32,
    appended: bool,
    transactional: bool,
    control: bool,
    base_offset: i64,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    count: i32,

    fn of(bytes: []const u8) Error!Header {
        var reader = reading.Reader{ .bytes = bytes };
        const base_offset = try reader.int(i64);
        // The length, the leader's epoch, magic and CRC
        _ = try reader.take(13);
        const attributes = try reader.int(u16);
        _ = try reader.int(i32); // delta of the last offset
        return .{
            .codec = attributes & 7,
            .appended = attributes & records.LOG_APPEND_TIME != 0,
            .transactional = attributes & records.TRANSACTIONAL != 0,
            .control = attributes & records.CONTROL != 0,
            .base_offset = base_offset,
            .base_timestamp = try reader.int(i64),
            .max_timestamp = try reader.int(i64),
            .producer_id = try reader.int(i64),
            .producer_epoch = try reader.int(i16),
            .base_sequence = try reader.int(i32),
            .count = try reader.int(i32),
        };
    }
};

/// A topic by its name, and by its id if the message has it.
const Topic = struct {
    name: u32 = NONE,
    id: u32 = NONE,
};

/// Facts from the fields of one struct.
const Own = struct {
    topic: Topic,
    /// Its own id, which has to be named unless its name is beside it.
    topic_id: ?*const [16]u8 = null,
    /// The name of its topic is in the struct.
    named: bool = false,
    partition: ?i32 = null,
    /// Position of an array of partitions.
    partitions: ?usize = null,
    compact: bool = false,
    offset: ?i64 = null,
    watermark: ?i64 = null,
    code: ?i32 = null,
    records: ?[]const u8 = null,
};

/// Decodes valid bodies by the roles of their fields.
const Facts = struct {
    call: *Exchanges,
    row: *Row,
    fields: Fields,
    is_request: bool,
    first_topic: usize,
    first_partition: usize,
    /// The partition of the last struct; usually the next struct is about the next partition.
    last: usize = 0,
    many_groups: bool = false,
    many_transactions: bool = false,

    const Self = @This();

    fn structure(self: *Self, index: u32, outer: Topic) Error!void {
        const op = &self.fields.program.ops[index];
        var own = Own{ .topic = outer };
        var done = false;
        var child = index + 1;
        for (0..op.fields) |_| {
            const field = &self.fields.program.ops[child];
            switch (@as(Role, @enumFromInt(field.role))) {
                .none => try self.fields.skip(child),
                .inside => {
                    // The struct's own facts come before these in its fields (`kafkasniff/engine/roles.py`).
                    if (!done) try self.note(&own);
                    done = true;
                    for (0..if (field.flags.array) try self.fields.length(field) orelse 0 else 1) |_| {
                        try self.structure(child, own.topic);
                    }
                },
                .facts => {
                    const row = self.row;
                    const start = self.fields.reader.at;
                    try self.fields.skip(child);
                    if (row.facts_size == 0) row.facts = @intCast(start);
                    if (row.facts + row.facts_size != start) return error.Odd;
                    row.facts_size = @intCast(self.fields.reader.at - row.facts);
                },
                else => |role| try self.value(role, field, &own),
            }
            child = field.next;
        }
        if (!done) try self.note(&own);
        if (op.flags.flexible) try self.fields.tags(op, child);
    }

    fn value(self: *Self, role: Role, field: *const Op, own: *Own) Error!void {
        switch (role) {
            .topic, .data_topic, .group, .transaction, .member => {
                for (0..if (field.flags.array) try self.fields.length(field) orelse 0 else 1) |_| {
                    const size = try self.fields.textLength(field);
                    const text = if (size) |known| try self.fields.reader.take(known) else null;
                    try self.named(role, text, own);
                    if (field.flags.array) own.topic.name = NONE;
                }
            },
            .topic_id => {
                const id = (try self.fields.reader.take(16))[0..16];
                if (!own.named) own.topic.name = NONE;
                own.topic.id = NONE;
                if (!std.mem.allEqual(u8, id, 0)) {
                    var text: [22]u8 = undefined;
                    encoding.uuid(&text, id);
                    own.topic.id = try self.call.names.index(&text);
                    own.topic_id = id;
                }
            },
            .rare => if (!field.flags.array or (try self.fields.length(field) orelse 0) > 0) return error.Odd,
            .partition => own.partition = try self.fields.reader.int(i32),
            .partitions => {
                own.partitions = self.fields.reader.at;
                own.compact = field.flags.compact;
                _ = try self.fields.reader.take(4 * (try self.fields.length(field) orelse 0));
            },
            .offset => own.offset = try self.fields.number(field),
            .watermark => own.watermark = try self.fields.number(field),
            .code => own.code = std.math.cast(i32, try self.fields.number(field)) orelse return error.Odd,
            .records => own.records = if (try self.fields.length(field)) |size| try self.fields.reader.take(size) else null,
            .throttle => {
                self.row.throttle = std.math.cast(i32, try self.fields.number(field)) orelse return error.Odd;
                self.row.has.throttle = true;
            },
            .none, .inside, .facts => unreachable,
            .value, _ => {
                const number_of = @intFromEnum(role) - @intFromEnum(Role.value);
                if (number_of >= VALUES) return error.Odd;
                self.row.values[number_of] = try self.fields.number(field);
            },
        }
    }

    fn named(self: *Self, role: Role, text: ?[]const u8, own: *Own) Error!void {
        const known = text orelse {
            if (role == .topic or role == .data_topic) own.topic.name = NONE;
            return;
        };
        // Python decodes their records; and a metadata log is fetched by other means.
        if (role == .data_topic and std.mem.startsWith(u8, known, "__")) return error.Odd;
        const index = try self.call.names.index(known);
        const row = self.row;
        switch (role) {
            .topic, .data_topic => {
                own.topic.name = index;
                own.named = true;
                try self.topic(index);
            },
            .group => {
                if (row.group != NONE and row.group != index) self.many_groups = true;
                row.group = index;
            },
            .transaction => {
                if (row.transaction != NONE and row.transaction != index) self.many_transactions = true;
                row.transaction = index;
            },
            else => (if (self.is_request) &row.asked_member else &row.given_member).* = index,
        }
    }

    fn topic(self: *Self, index: u32) Error!void {
        const call = self.call;
        const before = call.topics[self.first_topic..call.topics_used];
        if (std.mem.indexOfScalar(u32, before, index) != null) return;
        if (before.len == MOST) return error.Odd;
        if (call.topics_used == call.topics_size) return error.NoRoom;
        call.topics[call.topics_used] = index;
        call.topics_used += 1;
    }

    /// Names the topic of a struct that has only its id. The names of ids that are not learnt yet are added later, which
    /// is Python's, and so are the brokers' own topics.
    fn nameTopic(self: *Self, own: *Own) Error!void {
        const id = own.topic_id orelse return;
        if (own.topic.name != NONE) return;
        const name = try (self.call.topic_names orelse return error.Odd).learnt(id) orelse return error.Odd;
        if (std.mem.startsWith(u8, name, "__")) return error.Odd;
        own.topic.name = try self.call.names.index(name);
        try self.topic(own.topic.name);
    }

    /// Adds a struct's facts to its partitions.
    fn note(self: *Self, own: *Own) Error!void {
        try self.nameTopic(own);
        if (own.topic.name == NONE) {
            if (own.records != null) return error.Odd;
            return;
        }
        if (own.partition) |number_of| {
            const one = try self.partition(own.topic, number_of);
            if (own.offset) |offset| {
                one.offset = offset;
                one.has.offset = true;
            }
            if (own.watermark) |watermark| {
                one.watermark = watermark;
                one.has.watermark = true;
            }
            if (own.code) |code| if (!one.has.code) {
                one.code = code;
                one.has.code = true;
            };
            if (own.records) |bytes| try self.batches(one, bytes);
        } else if (own.records != null) return error.Odd;
        if (own.partitions) |at| {
            var reader = reading.Reader{ .bytes = self.fields.reader.bytes, .at = at };
            const count = if (own.compact) @as(i64, @intCast(try reader.varint())) - 1 else try reader.int(i32);
            for (0..@intCast(@max(count, 0))) |_| _ = try self.partition(own.topic, try reader.int(i32));
        }
    }

    fn partition(self: *Self, topic_of: Topic, number_of: i32) Error!*Partition {
        const call = self.call;
        const known = call.partitions[self.first_partition..call.partitions_used];
        if (self.last + 1 < known.len and isOf(&known[self.last + 1], topic_of, number_of)) {
            self.last += 1;
            return &known[self.last];
        }
        for (known, 0..) |*one, index| {
            if (!isOf(one, topic_of, number_of)) continue;
            self.last = index;
            return one;
        }
        if (known.len == MOST) return error.Odd;
        if (call.partitions_used == call.partitions_size) return error.NoRoom;
        const made = &call.partitions[call.partitions_used];
        made.* = .{ .topic = topic_of.name, .topic_id = topic_of.id, .partition = number_of };
        self.last = known.len;
        call.partitions_used += 1;
        return made;
    }

    /// Whether a partition is this one: by its topic's id if there is one.
    inline fn isOf(one: *const Partition, topic_of: Topic, number_of: i32) bool {
        return one.partition == number_of and one.topic_id == topic_of.id and
            (topic_of.id != NONE or one.topic == topic_of.name);
    }

    /// Walks the batches of a field. Other formats than magic 2 are left to Python, and so are control batches if records
    /// are wanted, and partitions that a message names twice, of which the last counts. The caller decompresses.
    fn batches(self: *Self, one: *Partition, bytes: []const u8) Error!void {
        if (one.has.batches) return error.Odd;
        const call = self.call;
        var at: usize = 0;
        one.records = 0;
        one.bytes = 0;
        one.batches = 0;
        one.has.batches = true;
        one.has.uncompressed = true;
        one.has.codec = false;
        while (bytes.len - at >= records.COMMON_SIZE) {
            const size = records.ENTRY + @as(usize, @intCast(@max(std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big), 0)));
            if (bytes[at + 16] != 2) return error.Odd;
            if (size > bytes.len - at) break;
            const batch = try Header.of(bytes[at..][0..size]);
            if (batch.control and call.records != 0) return error.Odd;
            one.records += batch.count;
            one.bytes += @intCast(size);
            if (batch.codec != 0) {
                if (batch.codec >= records.CODECS.len) return error.Odd;
                one.has.uncompressed = one.has.uncompressed and call.records != 0;
            }
            if (one.batches == 0) {
                one.producer_id = batch.producer_id;
                one.producer_epoch = batch.producer_epoch;
                one.base_sequence = batch.base_sequence;
                one.has.producer = true;
                one.codec = batch.codec;
                one.has.codec = true;
            } else if (one.codec != batch.codec) {
                one.codec = records.CODECS.len;
            }
            one.batches += 1;
            if (call.records != 0) try self.give(one, &batch, bytes[at..][0..size]);
            at += size;
        }
        one.bytes += @intCast(bytes.len - at);
        one.uncompressed = one.bytes;
    }

    /// A batch for `columns.zig`.
    fn give(self: *Self, one: *const Partition, batch: *const Header, bytes: []const u8) Error!void {
        const call = self.call;
        if (call.batches_used == call.batches_size) return error.NoRoom;
        call.batches[call.batches_used] = .{
            .records = bytes.ptr + records.HEADER_SIZE,
            .size = bytes.len - records.HEADER_SIZE,
            .base_offset = batch.base_offset,
            .base_timestamp = batch.base_timestamp,
            .append_timestamp = if (batch.appended) batch.max_timestamp else 0,
            .most_records = @min(call.call.max_records, records.MAX_RECORD_RATE * bytes.len),
            .most_headers = @min(call.call.max_records, records.MAX_HEADER_RATE * bytes.len),
            .base_sequence = batch.base_sequence,
            .magic = 2,
            .appended = @intFromBool(batch.appended),
            .spare = 0,
            .status = .odd,
            .found = .{},
            .counts = .{},
            .last_offset = 0,
        };
        call.shared[call.batches_used] = .{
            .producer_id = batch.producer_id,
            .count = batch.count,
            .row = @intCast(call.rows_used),
            .partition = one.partition,
            .topic = one.topic,
            .topic_id = one.topic_id,
            .place = @intCast((@intFromPtr(one) - @intFromPtr(call.partitions)) / @sizeOf(Partition)),
            .codec = @intCast(batch.codec),
            .producer_epoch = batch.producer_epoch,
            .is_request = @intFromBool(self.is_request),
            .appended = @intFromBool(batch.appended),
            .transactional = @intFromBool(batch.transactional),
        };
        call.batches_used += 1;
    }
};
