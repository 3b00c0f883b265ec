//! Walks the bytes of a message by a program and writes its body.
//!
//! The specification is `kafka/walker.py`: what it reports as a problem is `Odd` here.

const calls = @import("call.zig");
const Hiding = @import("payload.zig").Hiding;
const json = @import("json.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const record_fields = @import("records.zig");
const std = @import("std");
const isText = @import("text.zig").isText;

const Error = reading.Error;
const Op = programs.Op;

/// As `wire.MAX_ELEMENTS`, `wire.ZERO_SIZE_SLACK` and `wire.MAX_UNKNOWN_TAGS`.
const MAX_ELEMENTS = 4_000_000;
const ZERO_SIZE_SLACK = 64;
const MAX_UNKNOWN_TAGS = 100_000;
/// Bytes of a `records` field that is written with its message; Python reads the batches of larger ones one by one.
const MAX_FIELD = 64 << 10;
/// Bytes of the path of an error code; deeper ones are Python's.
const MAX_PATH = 1024;

/// Where in the body: the fields that lead to a value, the last one first.
const Place = struct {
    parent: ?*const Place,
    op: *const Op,
    /// Element of an array; none where it is negative.
    index: i64 = -1,
};

/// A walk that writes to `Out`, which is `json.Json` or `pack.Pack`.
pub fn Walk(comptime Out: type) type {
    return struct {
        const Self = @This();

        program: programs.Program,
        reader: reading.Reader,
        out: *Out,
        account: record_fields.Account,
        /// Error codes so far, in bytes of `call.errors`.
        errors: usize = 0,
        /// Secrets are withheld.
        hide: bool,
        /// Unknown tags may be payload, which is hidden.
        hides_tags: bool,
        elements: u64 = MAX_ELEMENTS,
        unknown: u64 = MAX_UNKNOWN_TAGS,
        /// A field of records as JSON has schema ids.
        wrote_schema_ids: bool = false,

        pub fn init(
            call: *calls.Call,
            program: programs.Program,
            data: []const u8,
            start: usize,
            out: *Out,
            hiding: ?*Hiding,
        ) Self {
            return .{
                .program = program,
                .reader = .{ .bytes = data, .at = start },
                .out = out,
                .account = .{ .call = call, .left = call.max_records, .hiding = hiding },
                .hide = program.traits.secrets and !call.wants.show_secrets,
                .hides_tags = Out.is_final and hiding != null and program.traits.payload,
            };
        }

        /// The whole body; returns where it ends.
        pub fn run(self: *Self) Error!usize {
            try self.structure(0, null);
            return self.reader.at;
        }

        fn structure(self: *Self, index: u32, parent: ?*const Place) Error!void {
            const op = &self.program.ops[index];
            var child = index + 1;
            const mark = try self.out.openMap(op.fields, if (op.flags.flexible) @as(usize, op.tagged) + 1 else 0);
            for (0..op.fields) |number| {
                const field_op = &self.program.ops[child];
                try self.out.key(self.program.key(field_op), number == 0);
                try self.field(child, parent);
                child = field_op.next;
            }
            var members: usize = op.fields;
            if (op.flags.flexible) {
                const count = try self.reader.varint();
                if (count > 0) members += try self.tagSection(op, child, parent, count);
            }
            try self.out.closeMap(mark, members);
        }

        /// Returns how many members it writes.
        fn tagSection(self: *Self, op: *const Op, first: u32, parent: ?*const Place, count: u64) Error!usize {
            if (count > self.reader.left() / 2) return error.Odd;
            const outer = self.reader.bytes;
            defer self.reader.bytes = outer;
            var previous: i64 = -1;
            var shown_unknown = false;
            var written: usize = 0;
            for (0..count) |number| {
                const begin = self.reader.at;
                const tag = try self.reader.varint();
                const size = try self.reader.varint();
                if (size > self.reader.left() or @as(i64, @intCast(tag)) <= previous) return error.Odd;
                previous = @intCast(tag);
                const stop = self.reader.at + @as(usize, @intCast(size));
                if (self.known(op, first, tag)) |index| {
                    const field_op = &self.program.ops[index];
                    try self.out.key(self.program.key(field_op), op.fields + written == 0);
                    written += 1;
                    self.reader.bytes = outer[0..stop];
                    try self.field(index, parent);
                    self.reader.bytes = outer;
                    if (self.reader.at != stop) return error.Odd;
                } else if (!shown_unknown) {
                    // All of them stand where the first one does.
                    shown_unknown = true;
                    try self.out.key("\"_unknown_tags\":", op.fields + written == 0);
                    written += 1;
                    self.reader.at = begin;
                    try self.unknownTags(op, first, count - number);
                    self.reader.at = stop;
                } else {
                    self.reader.at = stop;
                }
            }
            return written;
        }

        /// The op of a tagged field.
        fn known(self: *const Self, op: *const Op, first: u32, tag: u64) ?u32 {
            var index = first;
            for (0..op.tagged) |_| {
                const field_op = &self.program.ops[index];
                if (field_op.tag == tag) return index;
                index = field_op.next;
            }
            return null;
        }

        /// Those of the next `count` tagged fields that have no definition.
        fn unknownTags(self: *Self, op: *const Op, first: u32, count: u64) Error!void {
            const mark = try self.out.openList();
            var written: usize = 0;
            for (0..count) |_| {
                const tag = try self.reader.varint();
                const size = try self.reader.varint();
                const value = try self.reader.take(size);
                if (self.known(op, first, tag) != null) continue;
                if (self.unknown == 0) return error.Odd;
                self.unknown -= 1;
                try self.out.element(written == 0);
                written += 1;
                const one = try self.out.openMap(2, 0);
                try self.out.name("tag", true);
                try self.out.integer(@intCast(tag));
                if (self.hide) {
                    try self.out.name("redacted", false);
                    try self.out.integer(@intCast(size));
                } else if (Out.is_final and self.hides_tags) {
                    try self.out.put(",");
                    try self.out.standIn(self.account.hiding.?, value);
                } else {
                    try self.out.name("base64", false);
                    try self.out.encoded(value);
                }
                try self.out.closeMap(one, 2);
            }
            try self.out.closeList(mark, written);
        }

        fn field(self: *Self, index: u32, parent: ?*const Place) Error!void {
            const op = &self.program.ops[index];
            if (op.flags.array) return self.array(index, parent);
            const place = Place{ .parent = parent, .op = op };
            if (op.kind == .structure) {
                if (op.flags.nullable) {
                    // In a tag section the mark is an unsigned varint, elsewhere an int8.
                    const mark: i64 = if (op.flags.tagged) @intCast(try self.reader.varint()) else try self.reader.int(i8);
                    if (mark == @as(i64, if (op.flags.tagged) 0 else -1)) return self.out.nothing();
                    if (mark != 1) return error.Odd;
                }
                return self.structure(index, &place);
            }
            return self.scalar(op, op.flags.nullable, &place);
        }

        fn scalar(self: *Self, op: *const Op, can_be_null: bool, place: *const Place) Error!void {
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
                    try self.out.uuid(value[0..16]);
                },
                .error_code => {
                    const code = try self.reader.int(i16);
                    try self.out.integer(code);
                    if (code != 0) try self.note(code, place);
                },
                .string, .bytes, .records => try self.variable(op, can_be_null),
                .float64 => try self.out.float(try self.reader.int(u64)),
                .structure => unreachable,
                _ => return error.Odd,
            }
        }

        /// A length or count; null for -1.
        fn length(self: *Self, op: *const Op) Error!?usize {
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

        fn variable(self: *Self, op: *const Op, can_be_null: bool) Error!void {
            // An element of an array has the length of its type, not that of the array.
            var of_value = op.*;
            of_value.flags.array = false;
            const size = try self.length(&of_value) orelse {
                if (!can_be_null) return error.Odd;
                return self.out.nothing();
            };
            const begin = self.reader.at;
            const value = try self.reader.take(size);
            switch (op.kind) {
                .string => {
                    if (Out.is_final) {
                        // Whether it is a secret is for Python to say.
                        if (op.flags.config and self.hide) return error.Odd;
                        if (op.flags.watched and std.mem.startsWith(u8, value, "__")) return error.Odd;
                    } else if (op.flags.watched and std.mem.startsWith(u8, value, "__")) {
                        // The name may come after the records.
                        if (self.wrote_schema_ids) return error.Odd;
                        self.account.may_be_internal = true;
                    }
                    if (op.flags.secret and self.hide) {
                        if (!isText(value)) return error.Odd;
                        const one = try self.out.openMap(1, 0);
                        try self.out.name("redacted", true);
                        try self.out.integer(@intCast(size));
                        try self.out.closeMap(one, 1);
                    } else if (op.flags.payload) {
                        try self.out.payloadText(value);
                    } else {
                        try self.out.string(value);
                    }
                },
                .bytes => {
                    if (op.flags.secret and self.hide) {
                        try self.out.withheld(begin, size);
                    } else if (op.flags.payload or op.flags.nests) {
                        try self.out.payload(value);
                    } else {
                        try self.out.binary(value);
                    }
                },
                else => {
                    if (self.account.call.wants.records == .skip) return self.out.nothing();
                    if (Out.is_final) {
                        try self.finalRecords(op, value, begin);
                    } else {
                        try self.records(op, value, begin);
                    }
                },
            }
        }

        /// A `records` field that nobody adds anything to.
        fn finalRecords(self: *Self, op: *const Op, value: []const u8, begin: usize) Error!void {
            if (op.flags.secret or op.flags.unaligned) return error.Odd;
            const call = self.account.call;
            const before = call.truncated;
            call.truncated = 0;
            try record_fields.field(self.out, value, begin, &self.account);
            if (call.truncated > 0 and self.program.traits.whole_records) return error.Odd;
            if (call.truncated == 0) call.truncated = before;
        }

        /// A `records` field that Python may add something to: what is large, compressed or odd is left to it.
        fn records(self: *Self, op: *const Op, value: []const u8, begin: usize) Error!void {
            if (op.flags.unaligned) return self.out.place(.unaligned, begin, value.len);
            const call = self.account.call;
            const mark = self.out.at;
            const account = self.account;
            const truncated = call.truncated;
            const counted = call.records;
            const looked_at = call.looked_at;
            const wanted = call.batches_wanted;
            if (value.len <= MAX_FIELD) {
                const as_json = call.wants.json_records and !op.flags.secret and value.len > 0;
                const done = if (as_json) self.rendered(value, begin) else self.plain(value, begin);
                if (done) return else |reason| if (reason != error.Odd) return reason;
            }
            call.batches_wanted = wanted;
            self.out.at = mark;
            self.account = account;
            call.truncated = truncated;
            call.records = counted;
            call.looked_at = looked_at;
            try self.out.place(.records, begin, value.len);
        }

        fn plain(self: *Self, value: []const u8, begin: usize) Error!void {
            try record_fields.field(self.out, value, begin, &self.account);
        }

        /// The field as JSON within MessagePack.
        fn rendered(self: *Self, value: []const u8, begin: usize) Error!void {
            const call = self.account.call;
            const before = call.truncated;
            const mark = try self.out.openRendered(begin, value.len);
            var inner = json.Json{
                .bytes = self.out.bytes,
                .at = self.out.at,
                .form = call.wants.form,
                .hiding = self.account.hiding,
            };
            call.truncated = 0;
            try record_fields.field(&inner, value, begin, &self.account);
            // Python decompresses.
            if (self.account.wanting) return error.Odd;
            if (self.account.framed[0] or self.account.framed[1]) self.wrote_schema_ids = true;
            self.out.at = inner.at;
            try self.out.closeRendered(mark, call.truncated);
            if (call.truncated == 0) call.truncated = before;
        }

        fn array(self: *Self, index: u32, parent: ?*const Place) Error!void {
            const op = &self.program.ops[index];
            const count = try self.length(op) orelse {
                if (!op.flags.nullable) return error.Odd;
                return self.out.nothing();
            };
            const room = self.reader.left() + if (op.size == 0) @as(usize, ZERO_SIZE_SLACK) else 0;
            if (count > room / @max(op.size, 1) or count > self.elements) return error.Odd;
            self.elements -= count;
            try self.out.openArray(count);
            var place = Place{ .parent = parent, .op = op };
            for (0..count) |number| {
                try self.out.element(number == 0);
                place.index = @intCast(number);
                if (op.kind == .structure) {
                    try self.structure(index, &place);
                } else {
                    // An element is never allowed to be null.
                    try self.scalar(op, false, &place);
                }
            }
            try self.out.closeArray();
        }

        // Error codes

        /// Note an error code and where it is.
        fn note(self: *Self, code: i16, place: *const Place) Error!void {
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
}

fn prepend(path: *[MAX_PATH]u8, first: *usize, text: []const u8) Error!void {
    if (text.len > first.*) return error.Odd;
    first.* -= text.len;
    @memcpy(path[first.*..][0..text.len], text);
}
