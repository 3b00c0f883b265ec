//! Walks the bytes of a message by a program and writes its body as JSON.
//!
//! The specification is `kafka/walker.py`: what it reports as a problem is `Odd` here.

const calls = @import("call.zig");
const output = @import("output.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const records = @import("records.zig");
const std = @import("std");

const Error = reading.Error;
const Op = programs.Op;

/// As `wire.MAX_ELEMENTS`, `wire.ZERO_SIZE_SLACK` and `wire.MAX_UNKNOWN_TAGS`.
const MAX_ELEMENTS = 4_000_000;
const ZERO_SIZE_SLACK = 64;
const MAX_UNKNOWN_TAGS = 100_000;
/// Bytes of the path of an error code; deeper ones are Python's.
const MAX_PATH = 1024;

/// Where in the body: the fields that lead to a value, the last one first.
const Place = struct {
    parent: ?*const Place,
    op: *const Op,
    /// Element of an array; none where it is negative.
    index: i64 = -1,
};

pub const Walk = struct {
    program: programs.Program,
    reader: reading.Reader,
    out: *output.Output,
    account: records.Account,
    /// Error codes so far, in bytes of `call.errors`.
    errors: usize = 0,
    /// Secrets are withheld.
    hide: bool,
    elements: u64 = MAX_ELEMENTS,
    unknown: u64 = MAX_UNKNOWN_TAGS,

    pub fn init(call: *calls.Call, program: programs.Program, data: []const u8, start: usize, out: *output.Output) Walk {
        return .{
            .program = program,
            .reader = .{ .bytes = data, .at = start },
            .out = out,
            .account = .{ .call = call, .left = call.max_records },
            .hide = program.traits.secrets and !call.wants.show_secrets,
        };
    }

    /// The whole body, which ends with the data.
    pub fn run(self: *Walk) Error!void {
        try self.structure(0, null);
        if (self.reader.left() > 0) return error.Odd;
    }

    fn structure(self: *Walk, index: u32, parent: ?*const Place) Error!void {
        const op = &self.program.ops[index];
        var child = index + 1;
        try self.out.byte('{');
        for (0..op.fields) |number| {
            const field_op = &self.program.ops[child];
            if (number > 0) try self.out.byte(',');
            try self.out.put(self.program.key(field_op));
            try self.field(child, parent);
            child = field_op.next;
        }
        if (op.flags.flexible) {
            const count = try self.reader.varint();
            if (count > 0) try self.tagSection(op, child, parent, count);
        }
        try self.out.byte('}');
    }

    fn tagSection(self: *Walk, op: *const Op, first: u32, parent: ?*const Place, count: u64) Error!void {
        if (count > self.reader.left() / 2) return error.Odd;
        const outer = self.reader.bytes;
        defer self.reader.bytes = outer;
        var previous: i64 = -1;
        var shown_unknown = false;
        var written = op.fields > 0;
        for (0..count) |number| {
            const begin = self.reader.at;
            const tag = try self.reader.varint();
            const size = try self.reader.varint();
            if (size > self.reader.left() or @as(i64, @intCast(tag)) <= previous) return error.Odd;
            previous = @intCast(tag);
            const stop = self.reader.at + @as(usize, @intCast(size));
            if (self.known(op, first, tag)) |index| {
                const field_op = &self.program.ops[index];
                if (written) try self.out.byte(',');
                try self.out.put(self.program.key(field_op));
                self.reader.bytes = outer[0..stop];
                try self.field(index, parent);
                self.reader.bytes = outer;
                if (self.reader.at != stop) return error.Odd;
            } else if (!shown_unknown) {
                // All of them stand where the first one does.
                shown_unknown = true;
                if (written) try self.out.byte(',');
                self.reader.at = begin;
                try self.unknownTags(op, first, count - number);
                self.reader.at = stop;
            } else {
                self.reader.at = stop;
            }
            written = true;
        }
    }

    /// The op of a tagged field.
    fn known(self: *const Walk, op: *const Op, first: u32, tag: u64) ?u32 {
        var index = first;
        for (0..op.tagged) |_| {
            const field_op = &self.program.ops[index];
            if (field_op.tag == tag) return index;
            index = field_op.next;
        }
        return null;
    }

    /// Those of the next `count` tagged fields that have no definition.
    fn unknownTags(self: *Walk, op: *const Op, first: u32, count: u64) Error!void {
        try self.out.put("\"_unknown_tags\":[");
        var written = false;
        for (0..count) |_| {
            const tag = try self.reader.varint();
            const size = try self.reader.varint();
            const value = try self.reader.take(size);
            if (self.known(op, first, tag) != null) continue;
            if (self.unknown == 0) return error.Odd;
            self.unknown -= 1;
            try self.out.put(if (written) ",{\"tag\":" else "{\"tag\":");
            written = true;
            try self.out.integer(@intCast(tag));
            if (self.hide) {
                try self.out.put(",\"redacted\":");
                try self.out.integer(@intCast(size));
                try self.out.byte('}');
            } else {
                try self.out.put(",\"base64\":\"");
                try self.out.base64(value);
                try self.out.put("\"}");
            }
        }
        try self.out.byte(']');
    }

    fn field(self: *Walk, index: u32, parent: ?*const Place) Error!void {
        const op = &self.program.ops[index];
        if (op.flags.array) return self.array(index, parent);
        const place = Place{ .parent = parent, .op = op };
        if (op.kind == .structure) {
            if (op.flags.nullable) {
                // In a tag section the mark is an unsigned varint, elsewhere an int8.
                const mark: i64 = if (op.flags.tagged) @intCast(try self.reader.varint()) else try self.reader.int(i8);
                if (mark == @as(i64, if (op.flags.tagged) 0 else -1)) return self.out.put("null");
                if (mark != 1) return error.Odd;
            }
            return self.structure(index, &place);
        }
        return self.scalar(op, op.flags.nullable, &place);
    }

    fn scalar(self: *Walk, op: *const Op, can_be_null: bool, place: *const Place) Error!void {
        switch (op.kind) {
            .boolean => {
                const value = try self.reader.byte();
                if (value > 1) return error.Odd;
                try self.out.boolean(value == 1);
            },
            .int8 => try self.out.integer(try self.reader.int(i8)),
            .int16 => try self.out.integer(try self.reader.int(i16)),
            .uint16 => try self.out.integer(try self.reader.int(u16)),
            .int32 => try self.out.integer(try self.reader.int(i32)),
            .uint32 => try self.out.integer(try self.reader.int(u32)),
            .int64 => try self.out.integer(try self.reader.int(i64)),
            .uuid => {
                const value = try self.reader.take(16);
                try self.out.byte('"');
                try self.out.uuid(value[0..16]);
                try self.out.byte('"');
            },
            .error_code => {
                const code = try self.reader.int(i16);
                try self.out.integer(code);
                if (code != 0) try self.note(code, place);
            },
            .string, .bytes, .records => try self.variable(op, can_be_null),
            // Numbers with a fraction are for orjson to write.
            .float64 => return error.Odd,
            .structure => unreachable,
            _ => return error.Odd,
        }
    }

    /// A length or count; null for -1.
    fn length(self: *Walk, op: *const Op) Error!?usize {
        var value: i64 = undefined;
        if (op.flags.compact) {
            value = @as(i64, @intCast(try self.reader.varint())) - 1;
        } else if (op.kind == .string and !op.flags.array) {
            value = try self.reader.int(i16);
        } else {
            value = try self.reader.int(i32);
        }
        if (value == -1) return null;
        if (value < 0) return error.Odd;
        return @intCast(value);
    }

    fn variable(self: *Walk, op: *const Op, can_be_null: bool) Error!void {
        // An element of an array has the length of its type, not that of the array.
        var of_value = op.*;
        of_value.flags.array = false;
        const size = try self.length(&of_value) orelse {
            if (!can_be_null) return error.Odd;
            return self.out.put("null");
        };
        const begin = self.reader.at;
        const value = try self.reader.take(size);
        switch (op.kind) {
            .string => {
                // Whether it is a secret is for Python to say.
                if (op.flags.config and self.hide) return error.Odd;
                if (op.flags.watched and std.mem.startsWith(u8, value, "__")) return error.Odd;
                if (op.flags.secret and self.hide) {
                    if (!output.isText(value)) return error.Odd;
                    try self.redacted(size);
                } else {
                    try self.out.string(value);
                }
            },
            .bytes => {
                if (op.flags.secret and self.hide) {
                    try self.redacted(size);
                } else {
                    try self.out.binary(value, self.account.call.wants.form);
                }
            },
            else => {
                if (op.flags.secret or op.flags.unaligned) return error.Odd;
                if (self.account.call.wants.records == .skip) return self.out.put("null");
                const before = self.account.call.truncated;
                self.account.call.truncated = 0;
                try records.field(self.out, value, begin, &self.account);
                if (self.account.call.truncated > 0 and self.program.traits.whole_records) return error.Odd;
                if (self.account.call.truncated == 0) self.account.call.truncated = before;
            },
        }
    }

    fn redacted(self: *Walk, size: usize) Error!void {
        try self.out.put("{\"redacted\":");
        try self.out.integer(@intCast(size));
        try self.out.byte('}');
    }

    fn array(self: *Walk, index: u32, parent: ?*const Place) Error!void {
        const op = &self.program.ops[index];
        const count = try self.length(op) orelse {
            if (!op.flags.nullable) return error.Odd;
            return self.out.put("null");
        };
        const room = self.reader.left() + if (op.size == 0) @as(usize, ZERO_SIZE_SLACK) else 0;
        if (count > room / @max(op.size, 1) or count > self.elements) return error.Odd;
        self.elements -= count;
        try self.out.byte('[');
        var place = Place{ .parent = parent, .op = op };
        for (0..count) |number| {
            if (number > 0) try self.out.byte(',');
            place.index = @intCast(number);
            if (op.kind == .structure) {
                try self.structure(index, &place);
            } else {
                // An element is never allowed to be null.
                try self.scalar(op, false, &place);
            }
        }
        try self.out.byte(']');
    }

    // Error codes

    /// Note an error code and where it is.
    fn note(self: *Walk, code: i16, place: *const Place) Error!void {
        const call = self.account.call;
        var path: [MAX_PATH]u8 = undefined;
        var first: usize = path.len;
        var one: ?*const Place = place;
        while (one) |step| : (one = step.parent) {
            if (first < path.len) try prepend(&path, &first, ".");
            if (step.index >= 0) {
                try prepend(&path, &first, "]");
                var rest: u64 = @intCast(step.index);
                while (true) {
                    try prepend(&path, &first, &[_]u8{'0' + @as(u8, @intCast(rest % 10))});
                    rest /= 10;
                    if (rest == 0) break;
                }
                try prepend(&path, &first, "[");
            }
            try prepend(&path, &first, self.program.name(step.op));
        }
        const text = path[first..];
        if (call.errors_size - self.errors < 4 + text.len) return error.Odd;
        const entry = call.errors[self.errors..call.errors_size];
        std.mem.writeInt(i16, entry[0..2], code, .little);
        std.mem.writeInt(u16, entry[2..4], @intCast(text.len), .little);
        @memcpy(entry[4..][0..text.len], text);
        self.errors += 4 + text.len;
    }
};

fn prepend(path: *[MAX_PATH]u8, first: *usize, text: []const u8) Error!void {
    if (text.len > first.*) return error.Odd;
    first.* -= text.len;
    @memcpy(path[first.*..][0..text.len], text);
}
