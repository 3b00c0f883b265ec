//! The text of a summary: a template's phrases, with the values of fields.
//!
//! Fields that the template names are kept in slots. The texts of listed arrays are made while the body is walked, because
//! elements are not kept. The text of the message is put together after the last field.

const reading = @import("reader.zig");
const std = @import("std");
const tables = @import("summary_table.zig");
const texts = @import("summary_text.zig");

const Batches = @import("summary_records.zig").Batches;
const Names = @import("names.zig").Names;
const Error = reading.Error;
const List = tables.List;
const NONE = tables.NONE;
const Out = texts.Out;
const Paint = @import("summary_errors.zig").Paint;
const Table = tables.Table;
const Test = tables.Test;

/// Bytes of the text of a list; a message with a longer one is left to Python.
const LIST_ROOM = 2048;
/// As `phrases.SHOWN` and `phrases.PARTITIONS_SHOWN`.
const TOPICS_SHOWN = 3;
const PARTITIONS_SHOWN = 6;

/// The value of a field; `none` if it is null or absent. It is written in place, and only the members that its kind
/// needs.
pub const Slot = struct {
    kind: enum { none, number, text, uuid, records },
    number: i64,
    bytes: []const u8,

    pub inline fn setNumber(self: *Slot, number: i64) void {
        self.kind = .number;
        self.number = number;
    }

    pub fn says(self: *const Slot) bool {
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

pub const Phrases = struct {
    table: Table,
    names: ?*Names,
    /// Null: messages with errors are left to Python.
    paint: ?*const Paint = null,
    slots: [tables.MAX_SLOTS]Slot = undefined,
    listed: [tables.MAX_LISTS]Listed = undefined,
    rooms: [tables.MAX_LISTS][LIST_ROOM]u8 = undefined,

    pub inline fn reset(self: *Phrases, first_slot: u32, slots: u32, first_list: u32, lists: u32) void {
        for (self.slots[first_slot..][0..slots]) |*slot| slot.kind = .none;
        for (self.listed[first_list..][0..lists]) |*listed| listed.* = .{};
    }

    fn outOf(self: *Phrases, number: u16) Out {
        return .{ .bytes = &self.rooms[number], .at = self.listed[number].size };
    }

    /// Begins the next text of a list, after a separator.
    fn open(self: *Phrases, number: u16, one: *const List) Error!Out {
        var out = self.outOf(number);
        if (self.listed[number].shown > 0) out.put(self.table.literal(one.separator)) catch return error.Odd;
        return out;
    }

    /// Adds the text of an element whose fields are in their slots.
    pub fn phrase(self: *Phrases, number: u16, one: *const List) Error!void {
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
    pub fn partition(self: *Phrases, number: u16, one: *const List, value: i64) Error!void {
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

    /// Adds a word to a list of words.
    pub fn word(self: *Phrases, number: u16, one: *const List, value: []const u8) Error!void {
        const listed = &self.listed[number];
        listed.total += 1;
        if (listed.shown == one.shown) return;
        var out = try self.open(number, one);
        out.word(value) catch return error.Odd;
        listed.size = out.at;
        listed.shown += 1;
    }

    /// The numbers of a topic end with their array.
    pub fn endPartitions(self: *Phrases, number: u16) Error!void {
        const listed = &self.listed[number];
        if (listed.numbers <= PARTITIONS_SHOWN or listed.total > 0) return;
        var out = self.outOf(number);
        out.more(",", listed.numbers - PARTITIONS_SHOWN, "") catch return error.Odd;
        listed.size = out.at;
    }

    // Text

    /// Writes a sequence of nodes. `strict`: returns whether all of them have something to show.
    pub fn sequence(self: *Phrases, begin: u32, end: u32, strict: bool, out: *Out) Error!bool {
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
    fn node(self: *Phrases, at: u32, strict: bool, out: *Out) Error!bool {
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
                try out.integer(try self.numberAt(code[4]));
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
                try out.integer(try self.numberAt(code[3]));
            },
            .parts => return self.parts(code, at, out),
            .choice => try self.choice(code, at, out),
            _ => return error.Odd,
        }
        return true;
    }

    inline fn null_(_: *Phrases, strict: bool, text: []const u8, out: *Out) Error!bool {
        if (!strict) try out.put(text);
        return false;
    }

    fn topicName(self: *Phrases, name: u32, id: u32) Error!?[]const u8 {
        if (name != NONE and self.slots[name].kind == .text) return self.slots[name].bytes;
        if (id == NONE or self.slots[id].kind != .uuid or !self.slots[id].says()) return null;
        const names = self.names orelse return error.Odd;
        return names.get(self.slots[id].bytes[0..16]);
    }

    fn topic(self: *Phrases, name: u32, id: u32, out: *Out) Error!void {
        if (try self.topicName(name, id)) |found| return out.word(found);
        if (id == NONE or self.slots[id].kind != .uuid or !self.slots[id].says()) return out.put("?");
        try out.uuid(self.slots[id].bytes[0..16]);
    }

    /// Writes parts, each preceded by its size in words; non-empty ones are joined.
    fn parts(self: *Phrases, code: []const u32, at: u32, out: *Out) Error!bool {
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
    fn choice(self: *Phrases, code: []const u32, at: u32, out: *Out) Error!void {
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

    pub fn numberAt(self: *const Phrases, slot: u32) Error!i64 {
        return if (self.slots[slot].kind == .number) self.slots[slot].number else error.Odd;
    }

    fn holds(self: *Phrases, code: *const [tables.TEST_SIZE]u32) bool {
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
pub inline fn isInternal(name: []const u8) bool {
    return name.len >= 2 and name[0] == '_' and name[1] == '_';
}
