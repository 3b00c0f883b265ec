//! Summaries: the part of a line of text that describes a message's body, made by a compiled template.
//!
//! `kafkasniff/sinks/summaries/compiled.py` writes and describes the tables; `interpreter.py` is the specification of
//! templates. A body is walked once. Fields that the template names are kept in slots. The texts of listed arrays are
//! made during the walk, because elements are not kept. The text of the message is put together after the last field.
//! Anything unusual is `Odd`, and so is every character that is not printable ASCII.

const calls = @import("call.zig");
const reading = @import("reader.zig");
const std = @import("std");
const tables = @import("summary_table.zig");
const texts = @import("summary_text.zig");
const isText = @import("text.zig").isText;

const Batches = @import("summary_records.zig").Batches;
const Names = @import("names.zig").Names;
const Error = reading.Error;
const Field = tables.Field;
const List = tables.List;
const NONE = tables.NONE;
const Out = texts.Out;
const Reader = reading.Reader;
const Table = tables.Table;
const Test = tables.Test;

/// As `walk.zig`.
const MAX_ELEMENTS = 4_000_000;
const ZERO_SIZE_SLACK = 64;
const MAX_UNKNOWN_TAGS = 100_000;
/// Bytes of the text of a list; a message with a longer one is left to Python.
const LIST_ROOM = 2048;
/// As `phrases.SHOWN` and `phrases.PARTITIONS_SHOWN`.
const TOPICS_SHOWN = 3;
const PARTITIONS_SHOWN = 6;

/// The structure that callers pass in and get back.
pub const Call = extern struct {
    output: [*]u8,
    output_size: u64,
    /// Names of topic ids, and fetch sessions, by item; null: messages that need them are left to Python.
    names: ?*Names,
    /// A result: bytes of output.
    written: u64,
};

/// The value of a field; `none` if it is null or absent. It is written in place, and only the members that its kind
/// needs.
const Slot = struct {
    kind: enum { none, number, text, uuid, records },
    number: i64,
    bytes: []const u8,

    inline fn setNumber(self: *Slot, number: i64) void {
        self.kind = .number;
        self.number = number;
    }

    fn says(self: *const Slot) bool {
        return switch (self.kind) {
            .none => false,
            .number => self.number != 0,
            .text => self.bytes.len > 0,
            .uuid => !std.mem.allEqual(u8, self.bytes, 0),
            .records => !Batches.isEmpty(self.bytes),
        };
    }

    fn equals(self: *const Slot, other: *const Slot) bool {
        if (self.kind != other.kind) return false;
        return switch (self.kind) {
            .none => true,
            .number => self.number == other.number,
            else => std.mem.eql(u8, self.bytes, other.bytes),
        };
    }
};

/// The text of an array so far.
const Listed = struct {
    size: usize = 0,
    /// Number of texts in it, and of elements that have a text.
    shown: u64 = 0,
    total: u64 = 0,
    /// Partitions: how many numbers the current topic has.
    numbers: u64 = 0,
    preferred: bool = false,
};

pub const Walk = struct {
    table: Table,
    reader: Reader,
    names: ?*Names,
    elements: u64 = MAX_ELEMENTS,
    unknown: u64 = MAX_UNKNOWN_TAGS,
    slots: [tables.MAX_SLOTS]Slot = undefined,
    listed: [tables.MAX_LISTS]Listed = undefined,
    rooms: [tables.MAX_LISTS][LIST_ROOM]u8 = undefined,

    // Bytes

    fn structure(self: *Walk, index: u32) Error!void {
        const op = &self.table.fields[index];
        var child = index + 1;
        for (0..op.fields) |_| {
            try self.field(child);
            child = self.table.fields[child].next;
        }
        if (op.flags.flexible) {
            const count = try self.reader.varint();
            if (count > 0) try self.tags(op, child, count);
        }
    }

    fn tags(self: *Walk, op: *const Field, first: u32, count: u64) Error!void {
        if (count > self.reader.left() / 2) return error.Odd;
        const outer = self.reader.bytes;
        var previous: i64 = -1;
        for (0..count) |_| {
            const tag = try self.reader.varint();
            const size = try self.reader.varint();
            if (size > self.reader.left() or @as(i64, @intCast(tag)) <= previous) return error.Odd;
            previous = @intCast(tag);
            const stop = self.reader.at + @as(usize, @intCast(size));
            var index = first;
            for (0..op.tagged) |_| {
                if (self.table.fields[index].tag == tag) {
                    self.reader.bytes = outer[0..stop];
                    try self.field(index);
                    self.reader.bytes = outer;
                    if (self.reader.at != stop) return error.Odd;
                    break;
                }
                index = self.table.fields[index].next;
            } else {
                if (self.unknown == 0) return error.Odd;
                self.unknown -= 1;
                self.reader.at = stop;
            }
        }
    }

    fn field(self: *Walk, index: u32) Error!void {
        const op = &self.table.fields[index];
        if (op.flags.array) return self.array(index, op);
        if (op.kind == .structure) {
            if (op.flags.nullable and try self.isNull(op)) return;
            if (op.slot != NONE) self.slots[op.slot].setNumber(1);
            return self.structure(index);
        }
        if (op.slot == NONE) return self.skip(op, op.flags.nullable);
        try self.scalar(op, op.flags.nullable, &self.slots[op.slot]);
    }

    /// Skips a value that the template does not name, or several of fixed size.
    inline fn skip(self: *Walk, op: *const Field, can_be_null: bool) Error!void {
        if (op.width > 0) {
            _ = try self.reader.take(op.width);
        } else if (op.kind == .string) {
            const size = try self.length(op, false);
            if (op.flags.topic_name) self.noteName(size != null);
            if (size) |some| return self.checkText(op, try self.reader.take(some));
            if (!can_be_null) return error.Odd;
        } else {
            var slot: Slot = undefined;
            try self.scalar(op, can_be_null, &slot);
        }
    }

    /// Checks that a string is valid text, and that Python need not handle the message because of it.
    inline fn checkText(_: *Walk, op: *const Field, value: []const u8) Error!void {
        if (op.flags.watched and isInternal(value)) return error.Odd;
        if (!texts.isAscii(value) and !isText(value)) return error.Odd;
    }

    inline fn noteName(self: *Walk, is_named: bool) void {
        if (self.names) |names| names.named = @intFromBool(is_named);
    }

    /// Checks that Python need not handle the message because of a topic id.
    fn checkId(self: *Walk, op: *const Field, id: *const [16]u8) Error!void {
        const names = self.names orelse return error.Odd;
        const next = op.next;
        const named = if (next < self.table.fields.len and self.table.fields[next].flags.topic_name)
            self.reader.hasText(self.table.fields[next].flags.compact)
        else
            names.named != 0;
        names.named = 0;
        if (!named and !op.flags.watched) return;
        _ = try names.beside(id, named, op.flags.watched);
    }

    fn isNull(self: *Walk, op: *const Field) Error!bool {
        if (op.flags.tagged) {
            const mark = try self.reader.varint();
            if (mark > 1) return error.Odd;
            return mark == 0;
        }
        const mark = try self.reader.int(i8);
        if (mark != 1 and mark != -1) return error.Odd;
        return mark < 0;
    }

    inline fn scalar(self: *Walk, op: *const Field, can_be_null: bool, slot: *Slot) Error!void {
        switch (op.kind) {
            .boolean => {
                const value = try self.reader.byte();
                if (value > 1) return error.Odd;
                slot.setNumber(value);
            },
            .int8 => slot.setNumber(try self.reader.int(i8)),
            .int16 => slot.setNumber(try self.reader.int(i16)),
            .uint16 => slot.setNumber(try self.reader.int(u16)),
            .int32 => slot.setNumber(try self.reader.int(i32)),
            .uint32 => slot.setNumber(try self.reader.int(u32)),
            .int64 => slot.setNumber(try self.reader.int(i64)),
            .float64 => {
                _ = try self.reader.take(8);
                slot.kind = .none;
            },
            .uuid => {
                slot.bytes = try self.reader.take(16);
                slot.kind = .uuid;
                if (op.flags.topic_id) try self.checkId(op, slot.bytes[0..16]);
            },
            .error_code => {
                // Python shows errors, before the summary.
                if (try self.reader.int(i16) != 0) return error.Odd;
                slot.setNumber(0);
            },
            .string, .bytes, .records => {
                const found = try self.length(op, false);
                if (op.flags.topic_name) self.noteName(found != null);
                const size = found orelse {
                    if (!can_be_null) return error.Odd;
                    slot.kind = .none;
                    return;
                };
                const value = try self.reader.take(size);
                slot.bytes = value;
                if (op.kind == .records) {
                    try Batches.check(value, op.flags);
                    slot.kind = .records;
                    return;
                }
                if (op.kind == .string) try self.checkText(op, value);
                slot.kind = .text;
            },
            .structure, _ => return error.Odd,
        }
    }

    /// A length, or the count of an array; null for -1.
    inline fn length(self: *Walk, op: *const Field, comptime is_count: bool) Error!?usize {
        const value: i64 = if (op.flags.compact)
            @as(i64, @intCast(try self.reader.varint())) - 1
        else if (!is_count and op.kind == .string)
            try self.reader.int(i16)
        else
            try self.reader.int(i32);
        if (value >= 0) return @intCast(value);
        return if (value == -1) null else error.Odd;
    }

    fn array(self: *Walk, index: u32, op: *const Field) Error!void {
        const count = try self.length(op, true) orelse {
            if (!op.flags.nullable) return error.Odd;
            return;
        };
        if (count > self.reader.left() + ZERO_SIZE_SLACK or count > self.elements) return error.Odd;
        self.elements -= count;
        if (op.slot != NONE) self.slots[op.slot].setNumber(@intCast(count));
        if (op.sum != NONE) {
            const sum = &self.slots[op.sum];
            const before = if (sum.kind == .number) sum.number else 0;
            sum.setNumber(before +| @as(i64, @intCast(count)));
        }
        if (op.runs != NONE) return self.list(index, op, count);
        if (op.kind == .structure) {
            for (0..count) |_| try self.structure(index);
        } else if (op.width > 0) {
            _ = try self.reader.take(count * op.width);
        } else {
            for (0..count) |_| try self.skip(op, false);
        }
    }

    fn list(self: *Walk, index: u32, op: *const Field, count: usize) Error!void {
        const one = &self.table.lists[op.runs];
        const listed = &self.listed[op.runs];
        listed.numbers = 0;
        for (0..count) |_| {
            if (op.kind == .structure) {
                self.reset(one.first_slot, one.slots, one.first_list, one.lists);
                try self.structure(index);
                switch (one.kind) {
                    .each => try self.phrase(op.runs, one),
                    .partitions => try self.partition(op.runs, one, self.slots[one.index].number),
                    .words => return error.Odd,
                }
            } else {
                var value: Slot = undefined;
                try self.scalar(op, false, &value);
                switch (one.kind) {
                    .words => {
                        listed.total += 1;
                        if (listed.shown == one.shown) continue;
                        var out = try self.open(op.runs, one);
                        out.word(value.bytes) catch return error.Odd;
                        listed.size = out.at;
                        listed.shown += 1;
                    },
                    .partitions => try self.partition(op.runs, one, value.number),
                    .each => return error.Odd,
                }
            }
        }
        // The numbers of a topic end with their array.
        if (listed.numbers > PARTITIONS_SHOWN and listed.total == 0) {
            var out = self.outOf(op.runs);
            out.more(",", listed.numbers - PARTITIONS_SHOWN, "") catch return error.Odd;
            listed.size = out.at;
        }
    }

    inline fn reset(self: *Walk, first_slot: u32, slots: u32, first_list: u32, lists: u32) void {
        for (self.slots[first_slot..][0..slots]) |*slot| slot.kind = .none;
        for (self.listed[first_list..][0..lists]) |*listed| listed.* = .{};
    }

    fn outOf(self: *Walk, number: u16) Out {
        return .{ .bytes = &self.rooms[number], .at = self.listed[number].size };
    }

    /// Begins the next text of a list, after a separator.
    fn open(self: *Walk, number: u16, one: *const List) Error!Out {
        var out = self.outOf(number);
        if (self.listed[number].shown > 0) out.put(self.table.literal(one.separator)) catch return error.Odd;
        return out;
    }

    /// Adds the text of an element whose fields are in their slots.
    fn phrase(self: *Walk, number: u16, one: *const List) Error!void {
        const listed = &self.listed[number];
        var has_room = one.shown == 0 or listed.shown < one.shown;
        if (one.prefer != NONE) {
            if (self.slots[one.prefer].says()) {
                listed.preferred = true;
            } else if (listed.preferred) has_room = false;
        }
        if (!has_room and one.counts_all != 0) {
            listed.total += 1;
            return;
        }
        var out = try self.open(number, one);
        const begin = out.at;
        _ = self.sequence(one.code, one.code_end, false, &out) catch return error.Odd;
        if (out.at == begin) return;
        listed.total += 1;
        if (!has_room) return;
        listed.size = out.at;
        listed.shown += 1;
    }

    /// Adds a partition's number: `orders-0,1,+2 more`. Partitions of topics that are not shown are counted in `total`.
    fn partition(self: *Walk, number: u16, one: *const List, value: i64) Error!void {
        const listed = &self.listed[number];
        if (listed.numbers == 0 and listed.shown == TOPICS_SHOWN) {
            listed.total += 1;
            return;
        }
        listed.numbers += 1;
        if (listed.numbers > PARTITIONS_SHOWN) return;
        var out = if (listed.numbers == 1) try self.open(number, one) else self.outOf(number);
        if (listed.numbers == 1) {
            listed.shown += 1;
            self.topic(one.name, one.id, &out) catch return error.Odd;
            out.put("-") catch return error.Odd;
        } else {
            out.put(",") catch return error.Odd;
        }
        out.integer(value) catch return error.Odd;
        listed.size = out.at;
    }

    // Text

    /// Writes a sequence of nodes. `strict`: returns whether all of them have something to show.
    fn sequence(self: *Walk, begin: u32, end: u32, strict: bool, out: *Out) Error!bool {
        var at = begin;
        while (at < end) {
            const size = self.table.code[at + 1];
            if (!try self.node(at, strict, out) and strict) return false;
            at += size;
        }
        return true;
    }

    /// Writes a node and returns whether it has something to show. If it must show something but has nothing, it says
    /// so.
    fn node(self: *Walk, at: u32, strict: bool, out: *Out) Error!bool {
        const code = self.table.code[at..];
        switch (@as(tables.Node, @enumFromInt(code[0]))) {
            .text => try out.put(self.table.text(code[2], code[3])),
            .nothing => {
                if (!strict) try out.put(self.table.text(code[2], code[3]));
                return false;
            },
            .word => {
                const slot = &self.slots[code[2]];
                switch (slot.kind) {
                    .text => try out.word(slot.bytes),
                    .uuid => try out.uuid(slot.bytes[0..16]),
                    else => return self.null_(strict, "null", out),
                }
            },
            .number => {
                const slot = &self.slots[code[2]];
                if (slot.kind != .number) return self.null_(strict, "None", out);
                try out.integer(slot.number);
            },
            .name => {
                const slot = &self.slots[code[2]];
                if (slot.kind == .number) {
                    if (self.table.nameOf(code[3], slot.number)) |found| {
                        try out.put(found);
                        return true;
                    }
                }
                return self.null_(strict, "None", out);
            },
            .amount => {
                const slot = &self.slots[code[2]];
                if (slot.kind != .text) return false;
                try out.amount(@intCast(slot.bytes.len));
            },
            .count => {
                const slot = &self.slots[code[2]];
                // A null array has no elements; an unknown number has no text.
                if (slot.kind != .number and code[5] == 0) return self.null_(strict, "None", out);
                try out.count(if (slot.kind == .number) slot.number else 0, self.table.text(code[3], code[4]));
            },
            .list => {
                const listed = &self.listed[code[2]];
                const one = &self.table.lists[code[2]];
                if (listed.size == 0 and listed.total == 0) return false;
                try out.put(self.rooms[code[2]][0..listed.size]);
                const rest = if (one.kind == .partitions) listed.total else listed.total - listed.shown;
                if (rest > 0) {
                    const separator = if (listed.shown > 0) self.table.literal(one.separator) else "";
                    try out.more(separator, rest, self.table.literal(one.noun));
                }
            },
            .label => {
                try self.topic(code[2], code[3], out);
                try out.put("-");
                try out.integer(self.slots[code[4]].number);
            },
            .topic => try self.topic(code[2], code[3], out),
            .records => {
                const slot = &self.slots[code[2]];
                if (slot.kind != .records) return false;
                try Batches.phrase(slot.bytes, out);
            },
            .base_offset => {
                const slot = &self.slots[code[2]];
                if (slot.kind != .records or Batches.isEmpty(slot.bytes)) return self.null_(strict, "None", out);
                try out.integer(std.mem.readInt(i64, slot.bytes[0..8], .big));
            },
            .types => {
                // Python decodes the records of the brokers' own topics.
                if (!self.slots[code[4]].says()) return false;
                const name = try self.topicName(code[2], code[3]) orelse return false;
                if (isInternal(name)) return error.Odd;
                return false;
            },
            .address => {
                const host = &self.slots[code[2]];
                if (host.kind != .text) return error.Odd;
                const brackets = std.mem.indexOfScalar(u8, host.bytes, ':') != null;
                if (brackets) try out.put("[");
                try out.word(host.bytes);
                try out.put(if (brackets) "]:" else ":");
                try out.integer(self.slots[code[3]].number);
            },
            .refuse => if (self.slots[code[2]].says()) return error.Odd,
            .parts => return self.parts(code, at, out),
            .choice => try self.choice(code, at, out),
            _ => return error.Odd,
        }
        return true;
    }

    inline fn null_(_: *Walk, strict: bool, text: []const u8, out: *Out) Error!bool {
        if (!strict) try out.put(text);
        return false;
    }

    fn topicName(self: *Walk, name: u32, id: u32) Error!?[]const u8 {
        if (name != NONE and self.slots[name].kind == .text) return self.slots[name].bytes;
        if (id == NONE or self.slots[id].kind != .uuid or !self.slots[id].says()) return null;
        const names = self.names orelse return error.Odd;
        return names.get(self.slots[id].bytes[0..16]);
    }

    fn topic(self: *Walk, name: u32, id: u32, out: *Out) Error!void {
        if (try self.topicName(name, id)) |found| return out.word(found);
        if (id == NONE or self.slots[id].kind != .uuid or !self.slots[id].says()) return out.put("?");
        try out.uuid(self.slots[id].bytes[0..16]);
    }

    /// Writes parts, each preceded by its size in words; non-empty ones are joined.
    fn parts(self: *Walk, code: []const u32, at: u32, out: *Out) Error!bool {
        const begin = out.at;
        var place: u32 = 3;
        for (0..code[2]) |_| {
            const size = code[place];
            const mark = out.at;
            if (mark > begin) try out.put(", ");
            const inner = out.at;
            _ = try self.sequence(at + place + 1, at + place + 1 + size, false, out);
            if (out.at == inner) out.at = mark;
            place += 1 + size;
        }
        return out.at > begin;
    }

    /// Writes the first matching alternative. Each has its size, whether it is shown without values, its conditions,
    /// its nodes.
    fn choice(self: *Walk, code: []const u32, at: u32, out: *Out) Error!void {
        var place: u32 = 3;
        for (0..code[2]) |_| {
            const size = code[place];
            const whole = code[place + 1] != 0;
            const count = code[place + 2];
            const body = place + 3 + count * tables.TEST_SIZE;
            for (0..count) |number| {
                if (!self.holds(code[place + 3 + number * tables.TEST_SIZE ..][0..tables.TEST_SIZE])) break;
            } else {
                const mark = out.at;
                if (try self.sequence(at + body, at + place + 1 + size, !whole, out)) return;
                out.at = mark;
            }
            place += 1 + size;
        }
    }

    fn numberAt(self: *const Walk, slot: u32) Error!i64 {
        return if (self.slots[slot].kind == .number) self.slots[slot].number else error.Odd;
    }

    fn holds(self: *Walk, code: *const [tables.TEST_SIZE]u32) bool {
        const slot = &self.slots[code[1]];
        const number: i64 = @bitCast(@as(u64, code[2]) | @as(u64, code[3]) << 32);
        const is_number = slot.kind == .number;
        return switch (@as(Test, @enumFromInt(code[0]))) {
            .some => slot.says(),
            .none => !slot.says(),
            .equal => is_number and slot.number == number,
            .unequal => !(is_number and slot.number == number),
            .least => is_number and slot.number >= number,
            .is_null => slot.kind == .none,
            .not_null => slot.kind != .none,
            .same => slot.equals(&self.slots[code[2]]),
            .other => !slot.equals(&self.slots[code[2]]),
            _ => false,
        };
    }
};

/// Whether a topic is one of the brokers' own.
inline fn isInternal(name: []const u8) bool {
    return name.len >= 2 and name[0] == '_' and name[1] == '_';
}

/// Writes the summary of the body `data[start:]` to the front of `output`. `after` is the end of the body.
pub fn summary(
    walk: *Walk,
    address: [*]const u8,
    data: []const u8,
    start: usize,
    output: []u8,
    after: *u64,
) Error!usize {
    walk.table = Table.at(address);
    walk.reader = .{ .bytes = data, .at = start };
    walk.elements = MAX_ELEMENTS;
    walk.unknown = MAX_UNKNOWN_TAGS;
    const head = walk.table.head;
    walk.reset(0, head.root_slots, 0, head.root_lists);
    try walk.structure(0);
    if (head.session_id != NONE) {
        if (walk.names) |names| {
            const number = try walk.numberAt(head.session_id);
            // Errors are shown by Python.
            _ = try names.fact(if (head.is_response != 0) 0 else number);
            _ = try names.fact(if (head.is_response != 0) number else try walk.numberAt(head.session_epoch));
            if (head.session != NONE) {
                if (names.held()) |partitions| walk.slots[head.session].setNumber(partitions);
            }
        } else if (walk.slots[head.session_id].says()) return error.Odd;
    }
    var out = Out{ .bytes = output };
    _ = try walk.sequence(head.code, head.code_end, false, &out);
    if (out.at == 0 and head.is_response != 0) try out.put("ok");
    after.* = walk.reader.at;
    return out.at;
}

/// Writes summaries one after the other, for the items whose program is a table of a template, up to the first that
/// does not fit. Returns the number of items processed.
pub fn summaries(call: *Call, data: []const u8, items: []calls.Item) u64 {
    var walk: Walk = undefined;
    walk.names = call.names;
    walk.reset(0, tables.MAX_SLOTS, 0, tables.MAX_LISTS);
    var used: usize = 0;
    for (items, 0..) |*item, number| {
        item.status = .odd;
        item.output_end = used;
        const address = item.program orelse continue;
        if (item.start > item.end or item.end > data.len) continue;
        const output = call.output[used..call.output_size];
        const is_request = Table.at(address).head.is_response == 0;
        if (call.names) |names| names.begin(number, number, is_request, !is_request);
        const size = summary(&walk, address, data[0..item.end], item.start, output, &item.after);
        const asks = if (call.names) |names| names.isAsking() else false;
        if (asks or size == error.NoRoom) {
            item.status = if (asks) .asks else .no_room;
            call.written = used;
            return number;
        }
        used += size catch continue;
        item.output_end = used;
        item.status = .done;
    }
    call.written = used;
    return items.len;
}
