//! Error codes and problems that a walk notes, with their positions.

const calls = @import("call.zig");
const programs = @import("program.zig");
const std = @import("std");

const Text = @import("lines.zig").Text;

const Error = @import("reader.zig").Error;
const Op = programs.Op;

/// `Ended`: a noted problem ended the walk; the output up to it is kept.
pub const Failure = Error || error{Ended};

/// The problems that are noted. `kafka/schema/walker.py` has their numbers, kinds and texts.
pub const Problem = enum(u16) {
    cut_number = 1,
    cut_value = 2,
    cut_tag = 3,
    long_varint = 4,
    negative_length = 5,
    negative_count = 6,
    long_array = 7,
    long_tag_section = 8,
    /// The walk continues after these.
    null_value = 9,
    odd_boolean = 10,
    odd_mark = 11,
    odd_tagged_mark = 12,
    not_text = 13,
    /// Bytes follow the body.
    trailing = 14,
};

/// How a problem is worded.
pub const Wording = extern struct {
    kind: Text,
    /// What follows the path; `{}` stands for each number.
    words: Text,
    /// 1: a wrong length may have caused it, so that secrets may be in other fields.
    misread: u64,
};

/// An error code (kind 0) or a problem in `Call.notes`.
pub const Noted = struct {
    kind: u16,
    path: []const u8,
    position: u64,
    facts: Facts,
};

/// Reads what a walk has noted.
pub const NotedReader = struct {
    bytes: []const u8,
    at: usize = 0,

    pub fn next(self: *NotedReader) ?Noted {
        if (self.at == self.bytes.len) return null;
        const note = self.bytes[self.at..];
        const size = std.mem.readInt(u16, note[2..4], .little);
        var facts: Facts = undefined;
        inline for (&facts, 0..) |*fact, number| fact.* = std.mem.readInt(i64, note[12 + 8 * number ..][0..8], .little);
        self.at += calls.NOTE + size;
        return .{
            .kind = std.mem.readInt(u16, note[0..2], .little),
            .path = note[calls.NOTE..][0..size],
            .position = std.mem.readInt(u64, note[4..12], .little),
            .facts = facts,
        };
    }
};

/// Bytes of the path of an error code or a problem; messages with longer ones are left to Python.
const MAX_PATH = 1024;
/// The most problems of a body, as `context.MAX_PROBLEMS`; bodies with more are left to Python.
const MAX_PROBLEMS = 100;

/// A position in the body: the fields that lead to a value, innermost first.
pub const Place = struct {
    parent: ?*const Place,
    /// Null: the tag section.
    op: ?*const Op,
    /// Index of an array's element; negative: none.
    index: i64 = -1,
};

/// Numbers that a problem is reported with. The first number of an error code is the code.
pub const Facts = [3]i64;

pub const Notes = struct {
    call: *calls.Call,
    program: programs.Program,
    /// Bytes of `call.notes` that are used.
    used: usize = 0,
    problems: u32 = 0,
    /// Position of the last problem in `call.notes`, and its kind.
    last: usize = 0,
    last_problem: Problem = .cut_number,

    /// Notes a problem.
    pub fn note(self: *Notes, problem: Problem, place: ?*const Place, position: usize, facts: Facts) Error!void {
        @branchHint(.cold);
        // Bytes after the body are always reported.
        if (self.problems == MAX_PROBLEMS and problem != .trailing) return error.Odd;
        self.last = self.used;
        self.last_problem = problem;
        try self.put(@intFromEnum(problem), place, position, facts);
        self.problems += 1;
    }

    /// Notes an error code (0) or a problem, and its position.
    pub fn put(self: *Notes, kind: u16, place: ?*const Place, position: usize, facts: Facts) Error!void {
        const call = self.call;
        var path: [MAX_PATH]u8 = undefined;
        var first: usize = path.len;
        var one = place;
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
            try prepend(&path, &first, if (step.op) |op| self.program.name(op) else "_tags");
        }
        const text = path[first..];
        if (call.notes_size - self.used < calls.NOTE + text.len) return error.Odd;
        const entry = call.notes[self.used..call.notes_size];
        std.mem.writeInt(u16, entry[0..2], kind, .little);
        std.mem.writeInt(u16, entry[2..4], @intCast(text.len), .little);
        std.mem.writeInt(u64, entry[4..12], position, .little);
        inline for (facts, 0..) |fact, number| std.mem.writeInt(i64, entry[12 + 8 * number ..][0..8], fact, .little);
        @memcpy(entry[calls.NOTE..][0..text.len], text);
        self.used += calls.NOTE + text.len;
    }

    /// The last problem is noted no longer.
    pub fn dropLast(self: *Notes) void {
        self.used = self.last;
        self.problems -= 1;
    }
};

/// Sizes and varints as signed numbers. All of them are far below 2^63.
pub inline fn signed(value: u64) i64 {
    return @intCast(value);
}

fn prepend(path: *[MAX_PATH]u8, first: *usize, text: []const u8) Error!void {
    if (text.len > first.*) return error.Odd;
    first.* -= text.len;
    @memcpy(path[first.*..][0..text.len], text);
}
