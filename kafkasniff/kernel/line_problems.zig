//! The problems of a body in its line: what the walk noted, in the words of `kafka/schema/walker.py`.

const notes_of = @import("walk_notes.zig");
const std = @import("std");

const Error = @import("reader.zig").Error;
const Text = @import("lines.zig").Text;

pub const Wording = notes_of.Wording;
pub const NotedReader = notes_of.NotedReader;

/// How the problems of lines are worded, by their number minus 1.
pub const Wordings = extern struct {
    words: ?[*]const Wording,
    size: u64,
};

/// What problems of a version's bodies need besides, in one direction.
pub const Careful = extern struct {
    /// The words for bytes after a body.
    trailing: Text,
    /// Bytes with which a misread body may show a secret. Each entry: a uint8 length, the bytes.
    marks: Text,
};

/// What a walk of a whole body has found.
pub const Found = struct {
    /// Bytes of `Call.notes`.
    noted: usize = 0,
    problems: u32 = 0,
    /// The body was not read to its end.
    ended: bool = false,
};

/// Takes the results of a walk that ended `after` this position of the message. `Odd` if there is anything else that
/// Python has to judge: secrets that may be in the wrong place.
pub fn take(walk: anytype, after: usize, data: []const u8, begin: usize, wordings: *const Wordings, careful: *const Careful) Error!Found {
    if (walk.notes.problems == 0 and after == data.len) return .{ .noted = walk.notes.used };
    if (!walk.ended and after != data.len) {
        try walk.notes.note(.trailing, null, after, .{ @intCast(data.len - after), 0, 0 });
    }
    const found = Found{ .noted = walk.notes.used, .problems = walk.notes.problems, .ended = walk.ended };
    if (mayShow(data[begin..], careful.marks.get() orelse return error.Odd)) {
        var reader = NotedReader{ .bytes = walk.notes.call.notes[0..found.noted] };
        while (reader.next()) |noted| {
            if (noted.kind > 0 and (try wordingOf(wordings, noted.kind)).misread != 0) return error.Odd;
        }
    }
    return found;
}

/// Whether bytes have one of these marks of secrets.
fn mayShow(bytes: []const u8, marks: []const u8) bool {
    var at: usize = 0;
    while (at < marks.len) {
        const size = marks[at];
        if (std.mem.indexOf(u8, bytes, marks[at + 1 ..][0..size]) != null) return true;
        at += 1 + @as(usize, size);
    }
    return false;
}

pub fn wordingOf(wordings: *const Wordings, kind: u16) Error!*const Wording {
    if (kind > wordings.size) return error.Odd;
    return &(wordings.words orelse return error.Odd)[kind - 1];
}

pub fn kindOf(wordings: *const Wordings, kind: u16) Error![]const u8 {
    return (try wordingOf(wordings, kind)).kind.get() orelse error.Odd;
}

/// Writes what a problem says: printable ASCII.
pub fn detail(out: anytype, noted: *const notes_of.Noted, wordings: *const Wordings, careful: *const Careful) Error!void {
    var words = (try wordingOf(wordings, noted.kind)).words.get() orelse return error.Odd;
    if (noted.kind == @intFromEnum(notes_of.Problem.trailing)) {
        words = careful.trailing.get() orelse return error.Odd;
    } else {
        try out.put(noted.path);
        try out.put(": ");
    }
    for (noted.facts) |fact| {
        const place = std.mem.indexOf(u8, words, "{}") orelse break;
        try out.put(words[0..place]);
        try out.integer(fact);
        words = words[place + 2 ..];
    }
    try out.put(words);
}
