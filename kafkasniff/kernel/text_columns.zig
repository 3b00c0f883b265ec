//! Columns of lines of text, padded in the order in which the lines leave.
//!
//! Lines come with marks instead of padding. A column grows with what is in it, and the line of a day or of a capture
//! precedes the first message of it: so both depend on which lines come before, which is known only here if a filter
//! decides on a line after later ones were made. `kafkasniff/sinks/text.py` makes the marks.

const lines_of = @import("lines.zig");
const std = @import("std");

const Text = lines_of.Text;

/// Begins a mark. No text contains it, since control characters are escaped.
pub const MARK = 0x1F;
/// A digit of a number in a mark has this many bits, and is added to this character.
const DIGIT_BITS = 5;
const FIRST_DIGIT = 0x40;
pub const MAX_WIDTH = 1023;
const DATE = 10;
/// Bytes that the columns of a line usually fit into.
const ROOM = 32 << 10;

/// What a mark says.
pub const Kind = enum(u8) {
    /// The text of a column ends here: its width, two digits. It is padded.
    ends = 'e',
    api = 'a',
    exchange = 'x',
    correlation = 'r',
    client = 'c',
    /// The line of a message begins: its date, or spaces if it has no time.
    day = 'd',
    /// Before that, its capture: four digits.
    capture = 'f',
    /// Nothing follows in this line: it has no spaces at its end.
    last = 'l',
    _,
};

pub const Columns = extern struct {
    input: [*]const u8,
    input_size: u64,
    output: [*]u8,
    output_size: u64,
    /// Bytes read and written so far.
    read: u64,
    written: u64,
    ends: u64,
    api: u64,
    exchange: u64,
    correlation: u64,
    client: u64,
    /// The text before and after the day in the line of a day.
    day_before: Text,
    day_after: Text,
    /// The lines of captures; empty: it has none.
    captures: [*]const Text,
    captures_size: u64,
    /// The capture of the last message.
    capture: u64,
    /// The day of the last message that has a time.
    day: [DATE]u8,
};

/// The digits of a number.
pub fn digits(comptime count: usize, number: u64) [count]u8 {
    var found: [count]u8 = undefined;
    for (0..count) |place| {
        const shift: u6 = @intCast(DIGIT_BITS * (count - 1 - place));
        found[place] = FIRST_DIGIT + @as(u8, @intCast((number >> shift) & 31));
    }
    return found;
}

fn numberOf(text: []const u8) u64 {
    var found: u64 = 0;
    for (text) |digit| found = found << DIGIT_BITS | (digit & 31);
    return found;
}

/// Reads up to the end of the input, or until the output is full.
pub fn run(columns: *Columns) void {
    var writer = Writer{
        .columns = columns,
        .in = columns.input[0..columns.input_size],
        .out = columns.output[0..columns.output_size],
        .at = columns.written,
    };
    while (columns.read < writer.in.len and writer.next()) {}
    columns.written = writer.at;
}

const Writer = struct {
    columns: *Columns,
    in: []const u8,
    out: []u8,
    at: usize,

    const Self = @This();

    /// Passes on what precedes the next mark, and does what that says; false: there is no room.
    fn next(self: *Self) bool {
        const columns = self.columns;
        const begin = columns.read;
        const mark = std.mem.indexOfScalarPos(u8, self.in, begin, MARK) orelse self.in.len;
        const size = @min(mark - begin, self.out.len - self.at);
        @memcpy(self.out[self.at..][0..size], self.in[begin..][0..size]);
        self.at += size;
        columns.read += size;
        if (columns.read < mark) return false;
        if (mark == self.in.len) return true;
        const rest = self.in[mark + 1 ..];
        const kind: Kind = if (rest.len > 0) @enumFromInt(rest[0]) else .last;
        const arguments = rest[@min(1, rest.len)..];
        const length: usize = switch (kind) {
            .ends, .api, .exchange, .correlation, .client => 2,
            .day => DATE,
            .capture => 4,
            .last, _ => 0,
        };
        if (arguments.len < length) {
            columns.read = self.in.len;
            return true;
        }
        const argument = arguments[0..length];
        const is_done = switch (kind) {
            .ends => self.pad(&columns.ends, argument),
            .api => self.pad(&columns.api, argument),
            .exchange => self.pad(&columns.exchange, argument),
            .correlation => self.pad(&columns.correlation, argument),
            .client => self.pad(&columns.client, argument),
            .day => self.turnDay(argument),
            .capture => self.turnCapture(numberOf(argument)),
            .last => self.strip(),
            _ => true,
        };
        if (is_done) columns.read = mark + 2 + length;
        return is_done;
    }

    fn pad(self: *Self, column: *u64, argument: []const u8) bool {
        const width = numberOf(argument);
        column.* = @max(column.*, width);
        const missing = column.* - width;
        if (missing > self.out.len - self.at) return false;
        @memset(self.out[self.at..][0..missing], ' ');
        self.at += missing;
        return true;
    }

    fn turnCapture(self: *Self, number: u64) bool {
        const columns = self.columns;
        if (number == columns.capture) return true;
        const line = if (number < columns.captures_size) columns.captures[number].get() orelse "" else "";
        if (line.len > 0 and !self.addLine(&.{line})) return false;
        columns.capture = number;
        return true;
    }

    fn turnDay(self: *Self, date: []const u8) bool {
        const columns = self.columns;
        // So that its end can be stripped.
        if (self.at > 0 and self.out.len - self.at < ROOM) return false;
        if (date[0] == ' ' or std.mem.eql(u8, date, &columns.day)) return true;
        const before, const after = .{ columns.day_before.get() orelse "", columns.day_after.get() orelse "" };
        if (!self.addLine(&.{ before, date, " UTC", after })) return false;
        @memcpy(&columns.day, date);
        return true;
    }

    fn strip(self: *Self) bool {
        while (self.at > 0 and self.out[self.at - 1] == ' ') self.at -= 1;
        return true;
    }

    fn addLine(self: *Self, parts: []const []const u8) bool {
        var size: usize = 1;
        for (parts) |part| size += part.len;
        if (size > self.out.len - self.at) return false;
        for (parts) |part| {
            @memcpy(self.out[self.at..][0..part.len], part);
            self.at += part.len;
        }
        self.out[self.at] = '\n';
        self.at += 1;
        return true;
    }
};
