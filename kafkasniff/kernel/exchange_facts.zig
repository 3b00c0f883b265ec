//! The facts that an exchange has about groups, topics, partitions and record batches, by the roles of fields.
//!
//! The specification is `kafkasniff/kafka/apis/entities.py`. Bodies were walked before, so it is known where a problem ends
//! what can be read; what needs anything else is left to Python.

const encoding = @import("base64.zig");
const exchange_columns = @import("exchange_columns.zig");
const Fields = @import("fields.zig").Fields;
const programs = @import("program.zig");
const reading = @import("reader.zig");
const records = @import("records.zig");
const std = @import("std");

const Error = reading.Error;
/// `Rare`: Python has to decode the exchange. `Ended`: the walk of the body ended here.
const Failure = Error || error{ Rare, Ended };
const Exchanges = exchange_columns.Exchanges;
const Names = @import("names.zig").Names;
const NONE = exchange_columns.NONE;
const Op = programs.Op;
const Partition = exchange_columns.Partition;
const Row = exchange_columns.Row;
const UNNAMED = exchange_columns.UNNAMED;

/// Topics and partitions of an exchange, found by linear search; exchanges with more are left to Python.
const MOST = 1024;

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
    stable_offset = 10,
    code = 11,
    records = 12,
    member = 13,
    throttle = 14,
    topic_id = 15,
    /// An exchange in which this field is present, or is an array with elements, is left to Python.
    rare = 16,
    /// Facts about brokers: the caller compares their bytes with those that it knows. Exchanges with such fields in
    /// several places are left to Python.
    facts = 17,
    /// Values from here on: numbers that are stored in `Row.values`.
    value = 32,
    _,
};

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
    stable_offset: ?i64 = null,
    code: ?i32 = null,
    records: ?[]const u8 = null,
};

/// Decodes valid bodies by the roles of their fields.
pub const Facts = struct {
    call: *Exchanges,
    row: *Row,
    fields: Fields,
    is_request: bool,
    first_topic: usize,
    first_partition: usize,
    /// Where a problem ended the walk of the body; null: it was read to its end.
    end: ?usize = null,
    /// The partition of the last struct; usually the next struct is about the next partition.
    last: usize = 0,
    many_groups: bool = false,
    many_transactions: bool = false,

    const Self = @This();

    /// Decodes a body, up to where a problem ended its walk.
    pub fn body(self: *Self) Error!void {
        self.structure(0, .{}) catch |reason| switch (reason) {
            error.Ended => {},
            error.Rare => return error.Odd,
            error.Odd, error.NoRoom => |other| return other,
        };
    }

    /// Whether nothing more was read of the body.
    inline fn isOver(self: *const Self) bool {
        return self.fields.reader.at >= (self.end orelse return false);
    }

    fn structure(self: *Self, index: u32, outer: Topic) Failure!void {
        const op = &self.fields.program.ops[index];
        var own = Own{ .topic = outer };
        var done = false;
        var child = index + 1;
        for (0..op.fields) |number| {
            self.field(child, &own, &done) catch |reason| {
                // A value that is cut cannot be read here either.
                if (reason != error.Ended and !(reason == error.Odd and self.isOver())) return reason;
                try self.checkMissing(child, op.fields - number + op.tagged, outer);
                if (!done) try self.note(&own);
                return error.Ended;
            };
            child = self.fields.program.ops[child].next;
        }
        if (!done) try self.note(&own);
        if (op.flags.flexible) {
            self.fields.tags(op, child) catch |reason| return if (self.isOver()) error.Ended else reason;
        }
    }

    fn field(self: *Self, child: u32, own: *Own, done: *bool) Failure!void {
        if (self.isOver()) return error.Ended;
        const op = &self.fields.program.ops[child];
        switch (@as(Role, @fromBackingInt(@intCast(op.role)))) {
            .none => try self.fields.skip(child),
            .inside => {
                // The struct's own facts come before these in its fields (`kafkasniff/engine/roles.py`).
                if (!done.*) try self.note(own);
                done.* = true;
                const count = if (op.flags.array) try self.fields.length(op) else 1;
                // Null that is not allowed is as if the field were missing.
                if (count == null and !op.flags.nullable) return error.Rare;
                for (0..count orelse 0) |_| {
                    if (self.isOver()) return error.Ended;
                    try self.structure(child, own.topic);
                }
            },
            .facts => {
                const row = self.row;
                const start = self.fields.reader.at;
                self.fields.skip(child) catch return error.Rare;
                if (row.facts_size == 0) row.facts = @intCast(start);
                if (row.facts + row.facts_size != start or self.fields.reader.at > self.end orelse std.math.maxInt(usize)) return error.Rare;
                row.facts_size = @intCast(self.fields.reader.at - row.facts);
            },
            else => |role| try self.value(role, op, own),
        }
        // The field that was skipped has a wrong length.
        if (self.fields.reader.at > self.end orelse return) return error.Ended;
    }

    /// `Rare` if one of the last fields of a struct, which are missing, would have to be distinguished from its default.
    fn checkMissing(self: *const Self, first: u32, count: usize, outer: Topic) Failure!void {
        @branchHint(.cold);
        var child = first;
        for (0..count) |_| {
            const op = &self.fields.program.ops[child];
            switch (@as(Role, @fromBackingInt(@intCast(op.role)))) {
                .topic, .data_topic, .topic_id => if (outer.name != NONE or outer.id != NONE) return error.Rare,
                .none, .inside, .group, .transaction, .partition, .partitions, .offset, .watermark => {},
                .stable_offset, .code, .records, .member, .throttle, .facts => {},
                .rare, .value, _ => return error.Rare,
            }
            child = op.next;
        }
    }

    fn value(self: *Self, role: Role, op: *const Op, own: *Own) Failure!void {
        switch (role) {
            .topic, .data_topic, .group, .transaction, .member => {
                for (0..if (op.flags.array) try self.fields.length(op) orelse 0 else 1) |_| {
                    if (self.isOver()) return error.Ended;
                    const size = try self.fields.textLength(op);
                    const text = if (size) |known| try self.fields.reader.take(known) else null;
                    try self.named(role, text, own);
                    if (op.flags.array) own.topic.name = NONE;
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
            .rare => if (!op.flags.array or (try self.fields.length(op) orelse 0) > 0) return error.Rare,
            .partition => own.partition = try self.fields.reader.int(i32),
            .partitions => {
                const start = self.fields.reader.at;
                _ = try self.fields.reader.take(4 * (try self.fields.length(op) orelse 0));
                own.partitions = start;
                own.compact = op.flags.compact;
            },
            .offset => own.offset = try self.fields.number(op),
            .watermark => own.watermark = try self.fields.number(op),
            .stable_offset => own.stable_offset = try self.fields.number(op),
            .code => own.code = std.math.cast(i32, try self.fields.number(op)) orelse return error.Rare,
            .records => own.records = if (try self.fields.length(op)) |size| try self.fields.reader.take(size) else null,
            .throttle => {
                self.row.throttle = std.math.cast(i32, try self.fields.number(op)) orelse return error.Rare;
                self.row.has.throttle = true;
            },
            .none, .inside, .facts => unreachable,
            .value, _ => {
                const number_of = @backingInt(role) - @backingInt(Role.value);
                if (number_of >= exchange_columns.VALUES) return error.Rare;
                self.row.values[number_of] = try self.fields.number(op);
            },
        }
    }

    fn named(self: *Self, role: Role, text: ?[]const u8, own: *Own) Failure!void {
        const known = text orelse {
            if (role == .topic or role == .data_topic) own.topic.name = NONE;
            return;
        };
        // Python decodes their records; and a metadata log is fetched by other means.
        if (role == .data_topic and std.mem.startsWith(u8, known, "__")) return error.Rare;
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

    fn topic(self: *Self, index: u32) Failure!void {
        const call = self.call;
        const before = call.topics[self.first_topic..call.topics_used];
        if (std.mem.indexOfScalar(u32, before, index) != null) return;
        if (before.len == MOST) return error.Rare;
        if (call.topics_used == call.topics_size) return error.NoRoom;
        call.topics[call.topics_used] = index;
        call.topics_used += 1;
    }

    /// Names the topic of a struct that has only its id. The name of an id that nobody knows is added later, if the
    /// caller can do so. The brokers' own topics are left to Python, and names that no message has reported.
    fn nameTopic(self: *Self, own: *Own) Failure!void {
        const id = own.topic_id orelse return;
        if (own.topic.name != NONE) return;
        const found = try (self.call.topic_names orelse return error.Rare).topic(id) orelse return error.Rare;
        if (found.state == .unknown and self.call.unnamed != 0) return self.topic(own.topic.id | UNNAMED);
        if (found.state != .learnt) return error.Rare;
        const name = Names.nameOf(found) orelse return error.Rare;
        if (std.mem.startsWith(u8, name, "__")) return error.Rare;
        own.topic.name = try self.call.names.index(name);
        try self.topic(own.topic.name);
    }

    /// Adds a struct's facts to its partitions.
    fn note(self: *Self, own: *Own) Failure!void {
        self.facts(own) catch |reason| return if (reason == error.Odd) error.Rare else reason;
    }

    fn facts(self: *Self, own: *Own) Failure!void {
        try self.nameTopic(own);
        if (own.topic.name == NONE and (own.topic.id == NONE or self.call.unnamed == 0)) {
            if (own.records != null) return error.Rare;
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
            if (own.stable_offset) |stable_offset| {
                one.stable_offset = stable_offset;
                one.has.stable_offset = true;
            }
            if (own.code) |code| if (!one.has.code) {
                one.code = code;
                one.has.code = true;
            };
            if (own.records) |bytes| try self.batches(one, bytes);
        } else if (own.records != null) return error.Rare;
        if (own.partitions) |at| {
            var reader = reading.Reader{ .bytes = self.fields.reader.bytes, .at = at };
            const count = if (own.compact) @as(i64, @intCast(try reader.varint())) - 1 else try reader.int(i32);
            for (0..@intCast(@max(count, 0))) |_| _ = try self.partition(own.topic, try reader.int(i32));
        }
    }

    fn partition(self: *Self, topic_of: Topic, number_of: i32) Failure!*Partition {
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
        if (known.len == MOST) return error.Rare;
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
    fn batches(self: *Self, one: *Partition, bytes: []const u8) Failure!void {
        if (one.has.batches) return error.Rare;
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
            if (bytes[at + 16] != 2) return error.Rare;
            if (size > bytes.len - at) break;
            const batch = try Header.of(bytes[at..][0..size]);
            if (batch.control and call.records != 0) return error.Rare;
            one.records += batch.count;
            one.bytes += @intCast(size);
            if (batch.codec != 0) {
                if (batch.codec >= records.CODECS.len) return error.Rare;
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
