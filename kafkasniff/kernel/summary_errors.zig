//! The errors of a response before its summary, as `sinks/summaries/phrases.py` (`error_phrase`) words them.
//!
//! An error's subject is named by the fields of the structs around it, some of which follow the error code. So errors are
//! noted where they occur, and their subjects are written when their struct ends.

const reading = @import("reader.zig");
const std = @import("std");
const tables = @import("summary_table.zig");
const texts = @import("summary_text.zig");

const Error = reading.Error;
const NONE = tables.NONE;
const Out = texts.Out;
const Phrases = @import("summary_phrases.zig").Phrases;
const Subject = tables.Subject;
const Text = @import("lines.zig").Text;

/// As `phrases.SHOWN`: names of errors in a line, and subjects of each.
const SHOWN = 3;
/// Different errors of a message; those with more are left to Python.
const MAX_CODES = 64;
/// Bytes of all subjects and explanations.
const ROOM = 4096;
/// As `phrases._MESSAGE_WIDTH`.
const MESSAGE_WIDTH = 160;

/// The texts around errors, and their names. `native/library.py` has the same structure.
pub const Paint = extern struct {
    failure: Text,
    warning: Text,
    dim: Text,
    reset: Text,
    names: [*]const Text,
    names_size: u64,
    /// The code of the first name.
    first: i64,

    /// The name of an error; null: it has none.
    pub fn name(self: *const Paint, code: i64) ?[]const u8 {
        const place = code -| self.first;
        return if (place >= 0 and place < self.names_size) self.names[@intCast(place)].get() else null;
    }
};

const Range = struct { begin: u32 = 0, end: u32 = 0 };

/// The same error, of one or more subjects.
const Group = struct {
    code: i16,
    count: u64,
    /// Empty: the subject has no name.
    subjects: [SHOWN]Range,
    /// What the broker said of the first one.
    explained: Range,
};

/// An error whose struct has not ended.
const Pending = struct { group: u8, number: u8, depth: u32 };

pub const Errors = struct {
    groups: [MAX_CODES]Group = undefined,
    groups_size: usize = 0,
    pending: [SHOWN * SHOWN]Pending = undefined,
    pending_size: usize = 0,
    /// The structs around the current field; the first one is the body.
    path: [tables.MAX_STRUCTS]*const Subject = undefined,
    depth: u32 = 0,
    room: [ROOM]u8 = undefined,
    used: u32 = 0,

    /// Another message.
    pub inline fn begin(self: *Errors) void {
        self.groups_size = 0;
        self.pending_size = 0;
        self.depth = 0;
        self.used = 0;
    }

    /// A struct begins.
    pub inline fn enter(self: *Errors, phrases: *Phrases, number: u16) void {
        const subject = &phrases.table.subjects[number];
        // Fields of the tag section may be absent.
        if (subject.message != NONE) phrases.slots[subject.message].kind = .none;
        if (subject.leader != NONE) phrases.slots[subject.leader].kind = .none;
        self.path[self.depth] = subject;
        self.depth += 1;
    }

    /// It ends.
    pub inline fn leave(self: *Errors, phrases: *Phrases) Error!void {
        while (self.pending_size > 0 and self.pending[self.pending_size - 1].depth == self.depth) {
            self.pending_size -= 1;
            try self.settle(phrases, self.pending[self.pending_size]);
        }
        self.depth -= 1;
    }

    /// The current struct has this error code.
    pub fn note(self: *Errors, code: i16) Error!void {
        if (self.depth == 0) return error.Odd;
        for (self.path[0..self.depth], 1..) |subject, depth| {
            const odd = if (depth == self.depth) subject.own_odd else subject.inner_odd;
            if (odd != 0) return error.Odd;
        }
        const groups = self.groups[0..self.groups_size];
        const at = for (groups, 0..) |*group, number| {
            if (group.code == code) break number;
        } else groups.len;
        if (at == groups.len) {
            if (at == MAX_CODES) return error.Odd;
            self.groups[at] = .{ .code = code, .count = 0, .subjects = @splat(.{}), .explained = .{} };
            self.groups_size += 1;
        }
        const group = &self.groups[at];
        if (at < SHOWN and group.count < SHOWN) {
            self.pending[self.pending_size] = .{ .group = @intCast(at), .number = @intCast(group.count), .depth = self.depth };
            self.pending_size += 1;
        }
        group.count += 1;
    }

    fn settle(self: *Errors, phrases: *Phrases, pending: Pending) Error!void {
        const group = &self.groups[pending.group];
        const subject = self.path[self.depth - 1];
        var out = Out{ .bytes = &self.room, .at = self.used };
        self.subjectOf(phrases, &out) catch return error.Odd;
        group.subjects[pending.number] = .{ .begin = self.used, .end = @intCast(out.at) };
        self.used = @intCast(out.at);
        if (pending.number > 0) return;
        explain(phrases, subject, &out) catch return error.Odd;
        group.explained = .{ .begin = self.used, .end = @intCast(out.at) };
        self.used = @intCast(out.at);
    }

    fn subjectOf(self: *Errors, phrases: *Phrases, out: *Out) Error!void {
        const begin_at = out.at;
        for (self.path[1..self.depth]) |subject| {
            if (subject.partition != NONE) {
                if (out.at == begin_at) try out.put("?");
                try out.put("-");
                try out.integer(try phrases.numberAt(subject.partition));
                continue;
            }
            const mark = out.at;
            if (!try name(phrases, subject, out)) continue;
            // The name of an inner struct replaces that of an outer one.
            const size = out.at - mark;
            std.mem.copyForwards(u8, out.bytes[begin_at..][0..size], out.bytes[mark..][0..size]);
            out.at = begin_at + size;
        }
    }

    /// The broker's words, and the new leader.
    fn explain(phrases: *const Phrases, subject: *const Subject, out: *Out) Error!void {
        if (subject.message != NONE) {
            const message = &phrases.slots[subject.message];
            if (message.kind == .text and message.bytes.len > 0) {
                const paint = phrases.paint orelse return error.Odd;
                try out.put(" ");
                try out.put(paint.dim.get() orelse "");
                try out.wordOf(message.bytes, MESSAGE_WIDTH);
                try out.put(paint.reset.get() orelse "");
            }
        }
        if (subject.leader != NONE) {
            const leader = &phrases.slots[subject.leader];
            if (leader.kind == .number and leader.number >= 0) {
                try out.put(", leader now ");
                try out.integer(leader.number);
            }
        }
    }

    /// Writes the errors; they are of a response that has some.
    pub fn write(self: *const Errors, paint: *const Paint, out: *Out) Error!void {
        for (self.groups[0..@min(self.groups_size, SHOWN)], 0..) |*group, number| {
            if (number > 0) try out.put("; ");
            const begin_at = out.at;
            for (group.subjects[0..@min(group.count, SHOWN)]) |range| {
                if (range.begin == range.end) continue;
                if (out.at > begin_at) try out.put(", ");
                try out.put(self.room[range.begin..range.end]);
            }
            if (group.count > SHOWN) try out.more(if (out.at > begin_at) ", " else "", group.count - SHOWN, "");
            if (out.at > begin_at) try out.put(" ");
            try out.put(paint.failure.get() orelse "");
            if (paint.name(group.code)) |found| {
                try out.put(found);
            } else {
                try out.put("error ");
                try out.integer(group.code);
            }
            try out.put(paint.reset.get() orelse "");
            if (group.count == 1) try out.put(self.room[group.explained.begin..group.explained.end]);
        }
        if (self.groups_size > SHOWN) try out.more("; ", self.groups_size - SHOWN, "");
    }
};

/// Writes the name of a struct's subject; returns whether it has one.
fn name(phrases: *Phrases, subject: *const Subject, out: *Out) Error!bool {
    if (subject.id != NONE and (subject.topic == NONE or phrases.slots[subject.topic].kind != .text)) {
        const id = &phrases.slots[subject.id];
        if (id.kind == .uuid and id.says()) {
            const names = phrases.names orelse return error.Odd;
            if (try names.get(id.bytes[0..16])) |found| {
                try out.word(found);
                return true;
            }
        }
    }
    for (phrases.table.code[subject.names..subject.names_end]) |number| {
        const slot = &phrases.slots[number];
        switch (slot.kind) {
            .none => continue,
            .text => try out.word(slot.bytes),
            .number => try out.integer(slot.number),
            .uuid => {
                if (!slot.says()) continue;
                try out.uuid(slot.bytes[0..16]);
            },
            .records => return error.Odd,
        }
        return true;
    }
    return false;
}
