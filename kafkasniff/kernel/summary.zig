//! Summaries: the part of a line of text that describes a message's body, made by a compiled template.
//!
//! `kafkasniff/sinks/summaries/compiled.py` writes and describes the tables; `interpreter.py` is the specification of
//! templates. A body is walked once. `summary_phrases.zig` keeps the fields that the template names, and writes the text.
//! Anything unusual is `Odd`, and so is every character that is not printable ASCII. If another walk has noted what is
//! wrong with a body, its summary shows the fields up to that (`is_partial`).

const phrases_of = @import("summary_phrases.zig");
const reading = @import("reader.zig");
const std = @import("std");
const tables = @import("summary_table.zig");
const texts = @import("summary_text.zig");
const isText = @import("text.zig").isText;

const Batches = @import("summary_records.zig").Batches;
const Errors = @import("summary_errors.zig").Errors;
const Names = @import("names.zig").Names;
const Paint = @import("summary_errors.zig").Paint;
const Error = reading.Error;
const Field = tables.Field;
const List = tables.List;
const NONE = tables.NONE;
const Phrases = phrases_of.Phrases;
const Reader = reading.Reader;
const Table = tables.Table;

/// `Ended`: the body is invalid from here on.
const Failure = Error || error{Ended};

/// As `walk.zig`.
const MAX_ELEMENTS = 4_000_000;
const ZERO_SIZE_SLACK = 64;
const MAX_UNKNOWN_TAGS = 100_000;
/// The structure that callers pass in and get back.
pub const Call = extern struct {
    output: [*]u8,
    output_size: u64,
    /// Names of topic ids, and fetch sessions, by item; null: messages that need them are left to Python.
    names: ?*Names,
    /// How errors are shown; null: messages with errors are left to Python.
    paint: ?*const Paint,
    /// A result: bytes of output.
    written: u64,
};

pub const Walk = struct {
    reader: Reader,
    phrases: Phrases,
    errors: Errors = .{},
    elements: u64 = MAX_ELEMENTS,
    unknown: u64 = MAX_UNKNOWN_TAGS,
    /// Problems of the body were noted.
    is_partial: bool = false,
    /// The walk ended inside a value that is partly complete.
    kept: bool = false,

    fn structure(self: *Walk, index: u32) Failure!void {
        const op = &self.phrases.table.fields[index];
        if (op.subject != NONE) self.errors.enter(&self.phrases, op.subject);
        var child = index + 1;
        for (0..op.fields) |number| {
            self.field(child) catch |reason| return self.endStructure(reason, op, number);
            child = self.phrases.table.fields[child].next;
        }
        if (op.flags.flexible) self.section(op, child) catch |reason| return self.endStructure(reason, op, op.fields);
        if (op.subject != NONE) try self.errors.leave(&self.phrases);
    }

    /// Ends a struct after this number of whole fields.
    fn endStructure(self: *Walk, reason: Failure, op: *const Field, fields: usize) Failure {
        @branchHint(.cold);
        if (reason != error.Ended) return reason;
        self.kept = self.kept or fields > 0;
        if (op.subject != NONE) self.errors.leave(&self.phrases) catch |other| return other;
        return reason;
    }

    /// The walk ends inside a value.
    fn end(self: *Walk) Failure {
        @branchHint(.cold);
        self.kept = false;
        return if (self.is_partial) error.Ended else error.Odd;
    }

    inline fn varint(self: *Walk) Failure!u64 {
        return self.reader.varint() catch return self.end();
    }

    inline fn int(self: *Walk, comptime T: type) Failure!T {
        return self.reader.int(T) catch return self.end();
    }

    inline fn take(self: *Walk, size: usize) Failure![]const u8 {
        return self.reader.take(size) catch return self.end();
    }

    inline fn section(self: *Walk, op: *const Field, first: u32) Failure!void {
        const count = try self.varint();
        if (count > 0) try self.tags(op, first, count);
    }

    fn tags(self: *Walk, op: *const Field, first: u32, count: u64) Failure!void {
        // Whether a struct without other fields is shown depends on its tags.
        if (self.is_partial and op.fields == 0) return error.Odd;
        if (count > self.reader.left() / 2) return self.end();
        const outer = self.reader.bytes;
        var previous: i64 = -1;
        for (0..count) |_| {
            const tag = try self.varint();
            const size = try self.varint();
            if (size > self.reader.left()) return self.end();
            if (@as(i64, @intCast(tag)) <= previous) return error.Odd;
            previous = @intCast(tag);
            const stop = self.reader.at + @as(usize, @intCast(size));
            var index = first;
            for (0..op.tagged) |_| {
                if (self.phrases.table.fields[index].tag == tag) {
                    self.reader.bytes = outer[0..stop];
                    self.field(index) catch |reason| return if (reason == error.Ended) error.Odd else reason;
                    self.reader.bytes = outer;
                    if (self.reader.at != stop) return error.Odd;
                    break;
                }
                index = self.phrases.table.fields[index].next;
            } else {
                if (self.unknown == 0) return error.Odd;
                self.unknown -= 1;
                self.reader.at = stop;
            }
        }
    }

    fn field(self: *Walk, index: u32) Failure!void {
        const op = &self.phrases.table.fields[index];
        if (op.flags.array) return self.array(index, op);
        if (op.kind == .structure) {
            if (op.flags.nullable and try self.isNull(op)) return;
            if (op.slot != NONE) self.phrases.slots[op.slot].setNumber(1);
            return self.structure(index) catch |reason| {
                if (op.slot != NONE and !self.kept) self.phrases.slots[op.slot].kind = .none;
                return reason;
            };
        }
        if (op.slot == NONE) return self.skip(op, op.flags.nullable);
        try self.scalar(op, op.flags.nullable, &self.phrases.slots[op.slot]);
    }

    /// Skips a value that the template does not name, or several of fixed size.
    inline fn skip(self: *Walk, op: *const Field, can_be_null: bool) Failure!void {
        if (op.width > 0) {
            const left = self.reader.left();
            _ = self.take(op.width) catch |reason| {
                self.kept = left >= sizeOf(op.kind);
                return reason;
            };
        } else if (op.kind == .string) {
            const size = try self.length(op, false);
            if (op.flags.topic_name) self.noteName(size != null);
            if (size) |some| return self.checkText(op, try self.take(some));
            if (!can_be_null and !self.is_partial) return error.Odd;
        } else {
            var slot: phrases_of.Slot = undefined;
            try self.scalar(op, can_be_null, &slot);
        }
    }

    /// Checks that a string is valid text, and that Python need not handle the message because of it.
    inline fn checkText(_: *Walk, op: *const Field, value: []const u8) Error!void {
        if (op.flags.watched and phrases_of.isInternal(value)) return error.Odd;
        if (!texts.isAscii(value) and !isText(value)) return error.Odd;
    }

    inline fn noteName(self: *Walk, is_named: bool) void {
        if (self.phrases.names) |names| names.named = @intFromBool(is_named);
    }

    /// Checks that Python need not handle the message because of a topic id.
    fn checkId(self: *Walk, op: *const Field, id: *const [16]u8) Error!void {
        const names = self.phrases.names orelse return error.Odd;
        const next = op.next;
        const named = if (next < self.phrases.table.fields.len and self.phrases.table.fields[next].flags.topic_name)
            self.reader.hasText(self.phrases.table.fields[next].flags.compact)
        else
            names.named != 0;
        names.named = 0;
        if (!named and !op.flags.watched) return;
        _ = try names.beside(id, named, op.flags.watched);
    }

    fn isNull(self: *Walk, op: *const Field) Failure!bool {
        if (op.flags.tagged) {
            const mark = try self.varint();
            if (mark > 1 and !self.is_partial) return error.Odd;
            return mark == 0;
        }
        const mark = try self.int(i8);
        if (mark != 1 and mark != -1 and !self.is_partial) return error.Odd;
        return mark < 0;
    }

    inline fn scalar(self: *Walk, op: *const Field, can_be_null: bool, slot: *phrases_of.Slot) Failure!void {
        switch (op.kind) {
            .boolean => {
                const value = try self.int(u8);
                if (value > 1 and !self.is_partial) return error.Odd;
                slot.setNumber(@intFromBool(value != 0));
            },
            .int8 => slot.setNumber(try self.int(i8)),
            .int16 => slot.setNumber(try self.int(i16)),
            .uint16 => slot.setNumber(try self.int(u16)),
            .int32 => slot.setNumber(try self.int(i32)),
            .uint32 => slot.setNumber(try self.int(u32)),
            .int64 => slot.setNumber(try self.int(i64)),
            .float64 => {
                _ = try self.take(8);
                slot.kind = .none;
            },
            .uuid => {
                slot.bytes = try self.take(16);
                slot.kind = .uuid;
                if (op.flags.topic_id) try self.checkId(op, slot.bytes[0..16]);
            },
            .error_code => {
                const code = try self.int(i16);
                slot.setNumber(code);
                if (code != 0 and self.phrases.table.head.is_response != 0) try self.errors.note(code);
            },
            .string, .bytes, .records => {
                const found = try self.length(op, false);
                if (op.flags.topic_name) self.noteName(found != null);
                const size = found orelse {
                    if (!can_be_null and !self.is_partial) return error.Odd;
                    slot.kind = .none;
                    return;
                };
                const value = try self.take(size);
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
    inline fn length(self: *Walk, op: *const Field, comptime is_count: bool) Failure!?usize {
        const value: i64 = if (op.flags.compact)
            @as(i64, @intCast(try self.varint())) - 1
        else if (!is_count and op.kind == .string)
            try self.int(i16)
        else
            try self.int(i32);
        if (value >= 0) return @intCast(value);
        return if (value == -1) null else self.end();
    }

    fn array(self: *Walk, index: u32, op: *const Field) Failure!void {
        const count = try self.length(op, true) orelse {
            if (!op.flags.nullable and !self.is_partial) return error.Odd;
            return;
        };
        if (count > self.reader.left() + ZERO_SIZE_SLACK) return self.end();
        if (count > self.elements) return error.Odd;
        self.elements -= count;
        if (op.slot != NONE) self.phrases.slots[op.slot].setNumber(@intCast(count));
        if (op.sum != NONE) {
            const sum = &self.phrases.slots[op.sum];
            const before = if (sum.kind == .number) sum.number else 0;
            sum.setNumber(before +| @as(i64, @intCast(count)));
        }
        var whole: usize = 0;
        self.elementsOf(index, op, count, &whole) catch |reason| return self.endArray(reason, op, count, whole);
    }

    /// Ends an array after this number of whole elements.
    fn endArray(self: *Walk, reason: Failure, op: *const Field, count: usize, whole: usize) Failure {
        @branchHint(.cold);
        if (reason != error.Ended) return reason;
        const left = whole + @intFromBool(self.kept);
        self.kept = left > 0;
        if (op.slot != NONE) {
            const slot = &self.phrases.slots[op.slot];
            if (left > 0) slot.setNumber(@intCast(left)) else slot.kind = .none;
        }
        if (op.sum != NONE) self.phrases.slots[op.sum].number -|= @intCast(count - left);
        return reason;
    }

    fn elementsOf(self: *Walk, index: u32, op: *const Field, count: usize, whole: *usize) Failure!void {
        if (op.runs != NONE) return self.list(index, op, count, whole);
        if (op.kind != .structure and op.width > 0) {
            const room = self.reader.left();
            _ = self.take(count * op.width) catch |reason| {
                whole.* = room / op.width;
                return reason;
            };
            return;
        }
        while (whole.* < count) : (whole.* += 1) {
            if (op.kind == .structure) try self.structure(index) else try self.skip(op, false);
        }
    }

    fn list(self: *Walk, index: u32, op: *const Field, count: usize, whole: *usize) Failure!void {
        const one = &self.phrases.table.lists[op.runs];
        self.phrases.listed[op.runs].numbers = 0;
        while (whole.* < count) : (whole.* += 1) {
            if (op.kind == .structure) {
                self.phrases.reset(one.first_slot, one.slots, one.first_list, one.lists);
                self.structure(index) catch |reason| {
                    if (reason != error.Ended) return reason;
                    // The list ends with what is there of this element.
                    if (self.kept) try self.element(op, one);
                    try self.phrases.endPartitions(op.runs);
                    return reason;
                };
                try self.element(op, one);
            } else {
                var value: phrases_of.Slot = undefined;
                value.kind = .none;
                self.scalar(op, false, &value) catch |reason| {
                    if (reason == error.Ended) try self.phrases.endPartitions(op.runs);
                    return reason;
                };
                if (value.kind == .none) return error.Odd;
                switch (one.kind) {
                    .words => try self.phrases.word(op.runs, one, value.bytes),
                    .partitions => try self.phrases.partition(op.runs, one, value.number),
                    .each => return error.Odd,
                }
            }
        }
        try self.phrases.endPartitions(op.runs);
    }

    /// Adds the text of a struct in a list.
    inline fn element(self: *Walk, op: *const Field, one: *const List) Error!void {
        if (one.failed != NONE and self.phrases.slots[one.failed].says()) return;
        switch (one.kind) {
            .each => try self.phrases.phrase(op.runs, one),
            .partitions => try self.phrases.partition(op.runs, one, try self.phrases.numberAt(one.index)),
            .words => return error.Odd,
        }
    }
};

/// Bytes of a number.
fn sizeOf(kind: anytype) usize {
    return switch (kind) {
        .boolean, .int8 => 1,
        .int16, .uint16, .error_code => 2,
        .int32, .uint32 => 4,
        .int64, .float64 => 8,
        else => 16,
    };
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
    walk.phrases.table = Table.at(address);
    walk.reader = .{ .bytes = data, .at = start };
    walk.elements = MAX_ELEMENTS;
    walk.unknown = MAX_UNKNOWN_TAGS;
    const head = walk.phrases.table.head;
    walk.errors.begin();
    walk.phrases.reset(0, head.root_slots, 0, head.root_lists);
    walk.structure(0) catch |reason| switch (reason) {
        error.Ended => if (head.settled != 0) return error.Odd,
        error.Odd, error.NoRoom => |other| return other,
    };
    if (head.session_id != NONE) {
        if (walk.phrases.names) |names| {
            if (head.session != NONE) {
                if (names.session) |held| walk.phrases.slots[head.session].setNumber(held.partitions);
            }
        } else if (walk.phrases.slots[head.session_id].says()) return error.Odd;
    }
    var out = texts.Out{ .bytes = output };
    if (walk.errors.groups_size > 0) {
        try walk.errors.write(walk.phrases.paint orelse return error.Odd, &out);
        const behind = out.at;
        try out.put("; ");
        const begin = out.at;
        _ = try walk.phrases.sequence(head.code, head.code_end, false, &out);
        if (out.at == begin) out.at = behind;
    } else {
        _ = try walk.phrases.sequence(head.code, head.code_end, false, &out);
    }
    if (out.at == 0 and head.is_response != 0) try out.put("ok");
    if (head.throttle != NONE and walk.phrases.slots[head.throttle].says()) {
        const paint = walk.phrases.paint orelse return error.Odd;
        try out.put(", ");
        try out.put(paint.warning.get() orelse "");
        try out.put("throttled ");
        try out.integer(try walk.phrases.numberAt(head.throttle));
        try out.put(" ms");
        try out.put(paint.reset.get() orelse "");
    }
    after.* = walk.reader.at;
    return out.at;
}
