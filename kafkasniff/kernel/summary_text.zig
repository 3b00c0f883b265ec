//! The phrases of summaries, as `sinks/summaries/phrases.py` and `text/printable.py` write them, for printable ASCII.

const Error = @import("reader.zig").Error;
const std = @import("std");

/// The most characters of a word, as `printable.WORD_WIDTH`.
const WORD_WIDTH = 64;

const Class = enum(u8) {
    plain = 0,
    /// It ends a name in a line; a name that contains one is quoted.
    separator = 1,
    quote = 2,
    /// Not printable, not ASCII, or an escape.
    odd = 3,
};

const CLASSES: [256]u8 = classes: {
    var found: [256]u8 = @splat(@intFromEnum(Class.odd));
    for (0x20..0x7F) |character| found[character] = @intFromEnum(Class.plain);
    for (" ,;='()[]{}") |character| found[character] = @intFromEnum(Class.separator);
    found['"'] = @intFromEnum(Class.quote);
    found['\\'] = @intFromEnum(Class.odd);
    break :classes found;
};

/// The digits of the numbers below 100.
const PAIRS: [100][2]u8 = pairs: {
    var found: [100][2]u8 = undefined;
    for (&found, 0..) |*pair, number| pair.* = .{ '0' + number / 10, '0' + number % 10 };
    break :pairs found;
};

const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const UUID_SIZE = 22;

/// Copies few bytes in less time than a function call takes.
inline fn copy(into: []u8, from: []const u8) void {
    const size = from.len;
    if (size > 32) {
        @memcpy(into, from);
    } else if (size >= 16) {
        const first = from[0..16].*;
        const last = from[size - 16 ..][0..16].*;
        into[0..16].* = first;
        into[size - 16 ..][0..16].* = last;
    } else if (size >= 8) {
        const first = from[0..8].*;
        const last = from[size - 8 ..][0..8].*;
        into[0..8].* = first;
        into[size - 8 ..][0..8].* = last;
    } else if (size >= 4) {
        const first = from[0..4].*;
        const last = from[size - 4 ..][0..4].*;
        into[0..4].* = first;
        into[size - 4 ..][0..4].* = last;
    } else {
        for (into, from) |*to, character| to.* = character;
    }
}

/// Whether all bytes are ASCII.
pub inline fn isAscii(text: []const u8) bool {
    if (text.len < 8) {
        var all: u8 = 0;
        for (text) |character| all |= character;
        return all < 0x80;
    }
    var all: u64 = 0;
    var at: usize = 0;
    while (at + 8 < text.len) : (at += 8) all |= std.mem.readInt(u64, text[at..][0..8], .little);
    all |= std.mem.readInt(u64, text[text.len - 8 ..][0..8], .little);
    return all & 0x8080_8080_8080_8080 == 0;
}

pub const Out = struct {
    bytes: []u8,
    at: usize = 0,

    pub inline fn put(self: *Out, text: []const u8) Error!void {
        if (text.len > self.bytes.len - self.at) return error.NoRoom;
        copy(self.bytes[self.at..][0..text.len], text);
        self.at += text.len;
    }

    pub fn integer(self: *Out, value: i64) Error!void {
        var digits: [20]u8 = undefined;
        var first: usize = digits.len;
        var rest = @abs(value);
        while (rest >= 100) : (rest /= 100) {
            first -= 2;
            digits[first..][0..2].* = PAIRS[rest % 100];
        }
        if (rest >= 10) {
            first -= 2;
            digits[first..][0..2].* = PAIRS[rest];
        } else {
            first -= 1;
            digits[first] = '0' + @as(u8, @intCast(rest));
        }
        if (value < 0) try self.put("-");
        try self.put(digits[first..]);
    }

    /// A name as `printable.word` writes it.
    pub fn word(self: *Out, text: []const u8) Error!void {
        return self.wordOf(text, WORD_WIDTH);
    }

    /// The same with at most `width` characters.
    pub fn wordOf(self: *Out, text: []const u8, width: usize) Error!void {
        const kept = text[0..@min(text.len, width)];
        var worst: u8 = 0;
        for (kept) |character| worst = @max(worst, CLASSES[character]);
        if (worst == @intFromEnum(Class.odd)) return error.Odd;
        if (text.len > kept.len) {
            // The omitted part is counted in characters, so it must be ASCII.
            for (text[kept.len..]) |character| if (character >= 0x80) return error.Odd;
        }
        if (worst == 0 and kept.len > 0) {
            try self.put(kept);
        } else {
            try self.put("\"");
            for (kept) |character| {
                if (character == '"') try self.put("\\");
                try self.put(&.{character});
            }
            try self.put("\"");
        }
        if (text.len > kept.len) {
            try self.put("… +");
            try self.integer(@intCast(text.len - kept.len));
        }
    }

    /// A uuid as Kafka prints it.
    pub fn uuid(self: *Out, value: *const [16]u8) Error!void {
        if (UUID_SIZE > self.bytes.len - self.at) return error.NoRoom;
        // 22 characters of 6 bits are 132: the last one has 4 bits of padding.
        const bits = @as(u132, std.mem.readInt(u128, value, .big)) << 4;
        for (0..UUID_SIZE) |index| {
            const shift: u8 = @intCast(6 * (UUID_SIZE - 1 - index));
            self.bytes[self.at + index] = BASE64[@intCast((bits >> shift) & 0x3F)];
        }
        self.at += UUID_SIZE;
    }

    /// `1 record`, `12 records`; without a noun only the number.
    pub fn count(self: *Out, value: i64, noun: []const u8) Error!void {
        try self.integer(value);
        if (noun.len == 0) return;
        try self.put(" ");
        try self.put(noun);
        if (value != 1) try self.put("s");
    }

    /// `, +3 more`, `; +3 partitions`
    pub fn more(self: *Out, separator: []const u8, rest: u64, noun: []const u8) Error!void {
        try self.put(separator);
        try self.put("+");
        try self.count(@intCast(rest), noun);
        if (noun.len == 0) try self.put(" more");
    }

    /// Bytes in two or three digits: `512 B`, `3.1 kB`, `42 MB`.
    pub fn amount(self: *Out, size: u64) Error!void {
        if (size < 1000) {
            try self.integer(@intCast(size));
            return self.put(" B");
        }
        var value = @as(f64, @floatFromInt(size)) / 1000;
        for ([_][]const u8{ " kB", " MB", " GB" }) |unit| {
            if (value < 999.5) {
                try self.fixed(value, if (value < 9.95) 1 else 0);
                return self.put(unit);
            }
            value /= 1000;
        }
        try self.fixed(value, 1);
        try self.put(" TB");
    }

    /// A number of 0.5 to 2^52 with at most one decimal, rounded as Python rounds: by its exact value, half to even.
    fn fixed(self: *Out, value: f64, decimals: u1) Error!void {
        const bits: u64 = @bitCast(value);
        const exponent = @as(i32, @intCast(bits >> 52)) - 1075;
        if (exponent >= 0 or exponent < -60) return error.Odd;
        const fraction = bits & ((1 << 52) - 1) | 1 << 52;
        const scale: u128 = if (decimals == 1) 10 else 1;
        const product = @as(u128, fraction) * scale;
        const shift: u7 = @intCast(-exponent);
        var result: u64 = @intCast(product >> shift);
        const rest = product & ((@as(u128, 1) << shift) - 1);
        const half = @as(u128, 1) << (shift - 1);
        if (rest > half or (rest == half and result % 2 == 1)) result += 1;
        if (decimals == 0) return self.integer(@intCast(result));
        try self.integer(@intCast(result / 10));
        try self.put(".");
        try self.put(&.{'0' + @as(u8, @intCast(result % 10))});
    }
};
