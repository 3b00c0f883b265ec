//! Walks the bytes of a message with a program and writes its body.
//!
//! The specification is `kafka/schema/walker.py`. Frequent problems are noted here by number and position. If one of them ends
//! the walk, the output complete up to it is kept. Any other problem that the walker reports is `Odd`.

const calls = @import("call.zig");
const notes_of = @import("walk_notes.zig");
const Hiding = @import("payload.zig").Hiding;
const Names = @import("names.zig").Names;
const programs = @import("program.zig");
const reading = @import("reader.zig");
const std = @import("std");
const walk_records = @import("walk_records.zig");
const walk_tags = @import("walk_tags.zig");
const isText = @import("text.zig").isText;

const Account = @import("record_account.zig").Account;
const Error = reading.Error;
const Facts = notes_of.Facts;
const Failure = notes_of.Failure;
const Notes = notes_of.Notes;
const Op = programs.Op;
const Place = notes_of.Place;
const Problem = notes_of.Problem;
const signed = notes_of.signed;

/// As `context.MAX_ELEMENTS`, `context.ZERO_SIZE_SLACK` and `context.MAX_UNKNOWN_TAGS`.
const MAX_ELEMENTS = 4_000_000;
const ZERO_SIZE_SLACK = 64;
const MAX_UNKNOWN_TAGS = 100_000;
/// Bytes of an unsigned varint (`Reader.varint`).
const MAX_VARINT = 5;
/// As `interpreters.NOT_ASKED_FOR`.
const NO_SET = -0x8000_0000;

/// A walk whose output is `Out`: `json.Json`, `pack.Pack`, `tree.Tree`, `silent.Silent` or `redact.Blank`.
pub fn Walk(comptime Out: type) type {
    return struct {
        const Self = @This();
        /// It blanks a copy of the message, and writes nothing.
        pub const blanks = @hasDecl(Out, "blanks");

        program: programs.Program,
        reader: reading.Reader,
        out: *Out,
        account: Account,
        notes: Notes,
        /// The walk ended inside a value that is partly complete, so the value is kept.
        kept: bool = false,
        /// A problem ended the walk.
        ended: bool = false,
        /// Secrets are withheld.
        hide: bool,
        /// Unknown tags may be payload, which is hidden.
        hides_tags: bool,
        /// Names that are written beside topic ids and epochs of fetch sessions, in lines.
        names: ?*Names = null,
        elements: u64 = MAX_ELEMENTS,
        unknown: u64 = MAX_UNKNOWN_TAGS,
        /// The message names one of the brokers' own topics, and it has records.
        names_internal: bool = false,
        has_records: bool = false,
        /// A `records` field written as JSON has schema ids.
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
                .notes = .{ .call = call, .program = program },
                .account = .{ .call = call, .left = call.max_records, .hiding = hiding },
                .hide = program.traits.secrets and !call.wants.show_secrets,
                .hides_tags = Out.is_final and hiding != null and program.traits.payload,
            };
        }

        /// Writes the whole body, or the complete part of it. Returns where the walk ended.
        pub fn run(self: *Self) Error!usize {
            self.structure(0, null) catch |reason| switch (reason) {
                error.Ended => self.ended = true,
                error.Odd, error.NoRoom => |other| return other,
            };
            return self.reader.at;
        }

        fn structure(self: *Self, index: u32, parent: ?*const Place) Failure!void {
            const op = &self.program.ops[index];
            var child = index + 1;
            const mark = try self.out.openMap(op.fields, if (op.flags.flexible) @as(usize, op.tagged) + 1 else 0);
            for (0..op.fields) |number| {
                const field_op = &self.program.ops[child];
                const before = self.out.save();
                try self.key(field_op, number == 0);
                self.field(child, parent) catch |reason| return self.endMap(reason, mark, number, before);
                if (Out.is_final and field_op.flags.topic_id) try self.nameTopic(field_op);
                child = field_op.next;
            }
            var members: usize = op.fields;
            if (op.flags.flexible) {
                self.tags(op, child, parent, &members) catch |reason| {
                    return self.endMap(reason, mark, members, self.out.save());
                };
            }
            try self.out.closeMap(mark, members);
        }

        pub inline fn key(self: *Self, op: *const Op, is_first: bool) Error!void {
            try self.out.key(self.program.key(op), is_first);
            if (Out.is_tree) self.out.note = @enumFromInt(op.role);
        }

        /// Writes the name of the last topic id as the next member.
        fn nameTopic(self: *Self, op: *const Op) Error!void {
            const names = self.names orelse return;
            const ops = self.program.ops;
            const named = if (op.next < ops.len and ops[op.next].flags.topic_name)
                self.reader.hasText(ops[op.next].flags.compact)
            else
                names.named != 0;
            names.named = 0;
            const id = self.reader.bytes[self.reader.at - 16 ..][0..16];
            const name = try names.beside(id, named, false) orelse return;
            if (op.flags.watched) try self.watch(name);
            try self.out.key("\"_topic_name\":", false);
            try self.out.string(name);
        }

        /// Notes a name beside records: the brokers' own topics are left to Python.
        inline fn watch(self: *Self, name: []const u8) Error!void {
            if (!std.mem.startsWith(u8, name, "__")) return;
            self.names_internal = true;
            if (self.has_records) return error.Odd;
        }

        /// Writes the text of a fetch session, after the fields that identify it.
        inline fn noteSession(self: *Self) Error!void {
            const names = self.names orelse return;
            const shown = names.afterField() orelse return;
            try self.out.session(shown);
        }

        /// Closes a map in which the walk ended: in its member after the first `members`, which begins at `before`.
        fn endMap(self: *Self, reason: Failure, mark: usize, members: usize, before: anytype) Failure {
            @branchHint(.cold);
            if (reason != error.Ended) return reason;
            if (!self.kept) self.out.restore(before);
            const left = members + @intFromBool(self.kept);
            self.out.closeMap(mark, left) catch |other| return other;
            self.kept = left > 0;
            return reason;
        }

        /// Decodes the tag section of a struct and counts its members.
        inline fn tags(self: *Self, op: *const Op, first: u32, parent: ?*const Place, members: *usize) Failure!void {
            const start = self.reader.at;
            const count = self.reader.varint() catch {
                return self.badVarint(start, &.{ .parent = parent, .op = null });
            };
            if (count > 0) try walk_tags.section(self, op, first, parent, start, count, members);
        }

        pub fn field(self: *Self, index: u32, parent: ?*const Place) Failure!void {
            const op = &self.program.ops[index];
            if (op.flags.array) return self.array(index, parent);
            const place = Place{ .parent = parent, .op = op };
            if (op.kind == .structure) {
                if (op.flags.nullable and try self.isNull(op, &place)) return self.out.nothing();
                return self.structure(index, &place);
            }
            return self.scalar(op, op.flags.nullable, &place);
        }

        /// Whether a struct is null, by the mark before it: in a tag section an unsigned varint, elsewhere an int8.
        fn isNull(self: *Self, op: *const Op, place: *const Place) Failure!bool {
            const start = self.reader.at;
            if (op.flags.tagged) {
                const mark = try self.varint(place);
                if (mark > 1) try self.notes.note(.odd_tagged_mark, place, start, .{ signed(mark), 0, 0 });
                return mark == 0;
            }
            const mark = try self.int(i8, place);
            if (mark != 1 and mark != -1) try self.notes.note(.odd_mark, place, start, .{ mark, 0, 0 });
            return mark < 0;
        }

        fn scalar(self: *Self, op: *const Op, can_be_null: bool, place: *const Place) Failure!void {
            switch (op.kind) {
                .boolean => {
                    const value = try self.int(u8, place);
                    if (value > 1) try self.notes.note(.odd_boolean, place, self.reader.at - 1, .{ value, 0, 0 });
                    try self.out.boolean(value != 0);
                },
                .int8 => try self.out.integer(try self.int(i8, place)),
                .int16 => try self.out.integer(try self.int(i16, place)),
                .uint16 => try self.out.integer(try self.int(u16, place)),
                .int32 => {
                    const value = try self.int(i32, place);
                    try self.out.integer(value);
                    if (Out.is_final and op.flags.set and value != NO_SET) return error.Odd;
                    if (Out.is_final and op.flags.session) try self.noteSession();
                },
                .uint32 => try self.out.integer(try self.int(u32, place)),
                .int64 => try self.out.integer(try self.int(i64, place)),
                .uuid => {
                    const value = self.reader.take(16) catch return self.short(16, place);
                    if (blanks) try self.out.uuid(op, value[0..16]) else try self.out.uuid(value[0..16]);
                },
                .error_code => {
                    const code = try self.int(i16, place);
                    try self.out.integer(code);
                    if (Out.is_final and op.flags.session) try self.noteSession();
                    if (!blanks and code != 0) try self.notes.put(0, place, 0, .{ code, 0, 0 });
                },
                .string, .bytes, .records => try self.variable(op, can_be_null, place),
                .float64 => try self.out.float(try self.int(u64, place)),
                .structure => unreachable,
                _ => return error.Odd,
            }
        }

        inline fn int(self: *Self, comptime T: type, place: *const Place) Failure!T {
            return self.reader.int(T) catch return self.short(@sizeOf(T), place);
        }

        inline fn varint(self: *Self, place: *const Place) Failure!u64 {
            const start = self.reader.at;
            return self.reader.varint() catch return self.badVarint(start, place);
        }

        /// A length, or the count of an array; -1 is null.
        inline fn length(self: *Self, op: *const Op, comptime is_count: bool, place: *const Place) Failure!?usize {
            const start = self.reader.at;
            var value: i64 = undefined;
            if (op.flags.compact) {
                value = signed(try self.varint(place)) - 1;
            } else if (!is_count and op.kind == .string) {
                value = try self.int(i16, place);
            } else {
                value = try self.int(i32, place);
            }
            if (value >= 0) return @intCast(value);
            if (value == -1) return null;
            return self.fail(if (is_count) .negative_count else .negative_length, place, start, .{ value, 0, 0 });
        }

        /// Writes null, whether or not it is allowed.
        inline fn nothing(self: *Self, can_be_null: bool, place: *const Place, start: usize) Error!void {
            if (!can_be_null) try self.notes.note(.null_value, place, start, .{ 0, 0, 0 });
            return self.out.nothing();
        }

        fn variable(self: *Self, op: *const Op, can_be_null: bool, place: *const Place) Failure!void {
            const start = self.reader.at;
            const length_of = try self.length(op, false, place);
            if (Out.is_final and op.flags.topic_name) {
                if (self.names) |names| names.named = @intFromBool(length_of != null);
            }
            const size = length_of orelse return self.nothing(can_be_null, place, start);
            const begin = self.reader.at;
            const value = self.reader.take(size) catch {
                return self.fail(.cut_value, place, start, .{ signed(size), signed(self.reader.left()), 0 });
            };
            if (blanks) return self.out.variable(op, self.hide, value, begin);
            switch (op.kind) {
                .string => {
                    if (Out.is_final) {
                        // Python decides whether it is a secret.
                        if (op.flags.config and self.hide) return error.Odd;
                        if (op.flags.watched) try self.watch(value);
                    } else if (op.flags.watched and std.mem.startsWith(u8, value, "__")) {
                        // The name may follow the records.
                        if (self.wrote_schema_ids) return error.Odd;
                        self.account.may_be_internal = true;
                    }
                    if (op.flags.secret and self.hide) {
                        if (!isText(value)) return error.Odd;
                        if (Out.is_final) return self.out.withheld(begin, size);
                        const one = try self.out.openMap(1, 0);
                        try self.out.name("redacted", true);
                        try self.out.integer(@intCast(size));
                        try self.out.closeMap(one, 1);
                    } else if (op.flags.payload) {
                        try self.out.payloadText(value);
                    } else {
                        const mark = self.out.save();
                        self.out.string(value) catch |reason| {
                            if (reason != error.Odd) return reason;
                            self.out.restore(mark);
                            try self.notes.note(.not_text, place, begin, .{ signed(size), 0, 0 });
                            try self.out.binary(value);
                        };
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
                    if (size > 0) {
                        self.has_records = true;
                        if (Out.is_final and self.names_internal) return error.Odd;
                    }
                    if (self.account.call.wants.records == .skip) return self.out.nothing();
                    if (Out.is_final) {
                        try walk_records.whole(self, op, value, begin);
                    } else {
                        try walk_records.parts(self, op, value, begin);
                    }
                },
            }
        }

        fn array(self: *Self, index: u32, parent: ?*const Place) Failure!void {
            const op = &self.program.ops[index];
            var place = Place{ .parent = parent, .op = op };
            const start = self.reader.at;
            const count = try self.length(op, true, &place) orelse return self.nothing(op.flags.nullable, &place, start);
            const room = self.reader.left();
            if (count > room + ZERO_SIZE_SLACK) return self.fail(.long_array, &place, start, tooLong(op, count, room));
            if (count > self.elements) return error.Odd;
            self.elements -= count;
            const mark = try self.out.openArray(count);
            for (0..count) |number| {
                const before = self.out.save();
                try self.out.element(number == 0);
                place.index = @intCast(number);
                (if (op.kind == .structure)
                    self.structure(index, &place)
                else
                    // An element must never be null.
                    self.scalar(op, false, &place)) catch |reason| {
                    place.index = -1;
                    return self.endArray(reason, mark, number, before, &place, start, tooLong(op, count, room));
                };
            }
            try self.out.closeArray();
        }

        /// Closes an array in which the walk ended: in its element after the first `elements`, which begins at
        /// `before`.
        fn endArray(
            self: *Self,
            reason: Failure,
            mark: usize,
            elements: usize,
            before: anytype,
            place: *const Place,
            start: usize,
            facts: Facts,
        ) Failure {
            @branchHint(.cold);
            if (reason != error.Ended) return reason;
            if (!self.kept) self.out.restore(before);
            const left = elements + @intFromBool(self.kept);
            self.out.endArray(mark, left) catch |other| return other;
            const is_cut = switch (self.notes.last_problem) {
                .cut_number, .cut_value, .cut_tag => true,
                else => false,
            };
            if (is_cut and left <= 1 and facts[0] * facts[1] > facts[2]) {
                // If there is at most one element, the count is to blame.
                self.notes.dropLast();
                self.notes.note(.long_array, place, start, facts) catch |other| return other;
            }
            self.kept = left > 0;
            return reason;
        }

        // Notes

        /// Notes a number that needs `size` bytes, of which fewer are left.
        fn short(self: *Self, size: usize, place: *const Place) Failure {
            @branchHint(.cold);
            return self.fail(.cut_number, place, self.reader.at, .{ signed(size), signed(self.reader.left()), 0 });
        }

        /// Notes a varint at `start` that does not end.
        pub fn badVarint(self: *Self, start: usize, place: *const Place) Failure {
            @branchHint(.cold);
            if (self.reader.bytes.len - start >= MAX_VARINT) return self.fail(.long_varint, place, start, .{ 0, 0, 0 });
            return self.fail(.cut_number, place, self.reader.bytes.len, .{ 1, 0, 0 });
        }

        /// Ends the walk at `position`.
        pub fn fail(self: *Self, problem: Problem, place: *const Place, position: usize, facts: Facts) Failure {
            @branchHint(.cold);
            // A field that decides whether to hide a value may come after the end of the bytes.
            if (self.hide) return error.Odd;
            self.reader.at = position;
            self.kept = false;
            self.notes.note(problem, place, position, facts) catch |reason| return reason;
            return error.Ended;
        }

    };
}

fn tooLong(op: *const Op, count: usize, room: usize) Facts {
    return .{ signed(count), op.size, signed(room) };
}
