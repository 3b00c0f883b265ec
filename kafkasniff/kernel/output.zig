//! JSON text into a buffer of the caller's: what orjson writes of the same values, byte for byte.

const std = @import("std");
const Error = @import("reader.zig").Error;

/// How bytes are shown.
pub const Form = enum(u2) {
    /// A string where they are UTF-8, else `{"base64"}`.
    auto = 0,
    base64 = 1,
    hex = 2,
    _,
};

const WIDTH = 16;
const Block = @Vector(WIDTH, u8);
const Bits = u16;

const HEX = "0123456789abcdef";
const STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub const Output = struct {
    bytes: []u8,
    at: usize = 0,

    /// Makes sure that `size` bytes fit.
    pub inline fn room(self: *Output, size: usize) Error!void {
        if (size > self.bytes.len - self.at) return error.NoRoom;
    }

    pub inline fn put(self: *Output, text: []const u8) Error!void {
        try self.room(text.len);
        @memcpy(self.bytes[self.at..][0..text.len], text);
        self.at += text.len;
    }

    pub inline fn byte(self: *Output, value: u8) Error!void {
        try self.room(1);
        self.bytes[self.at] = value;
        self.at += 1;
    }

    pub fn integer(self: *Output, value: i64) Error!void {
        var digits: [20]u8 = undefined;
        var first: usize = digits.len;
        var rest: u64 = @abs(value);
        while (rest >= 10) {
            first -= 1;
            digits[first] = '0' + @as(u8, @intCast(rest % 10));
            rest /= 10;
        }
        first -= 1;
        digits[first] = '0' + @as(u8, @intCast(rest));
        if (value < 0) {
            first -= 1;
            digits[first] = '-';
        }
        try self.put(digits[first..]);
    }

    pub fn boolean(self: *Output, value: bool) Error!void {
        try self.put(if (value) "true" else "false");
    }

    /// A string in quotes. Text that is not UTF-8 is `Odd`.
    pub fn string(self: *Output, text: []const u8) Error!void {
        try self.byte('"');
        var at: usize = 0;
        while (true) {
            while (text.len - at >= WIDTH and self.bytes.len - self.at >= WIDTH) {
                const block: Block = text[at..][0..WIDTH].*;
                const special = (block < @as(Block, @splat(0x20))) |
                    (block == @as(Block, @splat('"'))) |
                    (block == @as(Block, @splat('\\'))) |
                    (block >= @as(Block, @splat(0x80)));
                self.bytes[self.at..][0..WIDTH].* = block;
                const bits: Bits = @bitCast(special);
                if (bits != 0) {
                    const plain = @ctz(bits);
                    at += plain;
                    self.at += plain;
                    break;
                }
                at += WIDTH;
                self.at += WIDTH;
            }
            if (at >= text.len) break;
            at = try self.one(text, at);
        }
        try self.byte('"');
    }

    /// One character, escaped as JSON asks; returns the place of the next one.
    inline fn one(self: *Output, text: []const u8, at: usize) Error!usize {
        const first = text[at];
        if (first >= 0x80) {
            const size = try sequence(text[at..]);
            try self.put(text[at..][0..size]);
            return at + size;
        }
        if (first >= 0x20 and first != '"' and first != '\\') {
            try self.byte(first);
            return at + 1;
        }
        const short: u8 = switch (first) {
            '"', '\\' => first,
            0x08 => 'b',
            '\t' => 't',
            '\n' => 'n',
            0x0C => 'f',
            '\r' => 'r',
            else => {
                try self.put("\\u00");
                try self.byte(HEX[first >> 4]);
                try self.byte(HEX[first & 15]);
                return at + 1;
            },
        };
        try self.byte('\\');
        try self.byte(short);
        return at + 1;
    }

    /// Bytes in the wanted form.
    pub fn binary(self: *Output, value: []const u8, form: Form) Error!void {
        if (form == .auto) {
            const begin = self.at;
            self.string(value) catch |reason| switch (reason) {
                error.Odd => {
                    self.at = begin;
                    return self.wrapped("{\"base64\":\"", value);
                },
                else => return reason,
            };
            return;
        }
        if (form == .base64) return self.wrapped("{\"base64\":\"", value);
        try self.put("{\"hex\":\"");
        try self.room(2 * value.len);
        for (value) |one_byte| {
            try self.byte(HEX[one_byte >> 4]);
            try self.byte(HEX[one_byte & 15]);
        }
        try self.put("\"}");
    }

    fn wrapped(self: *Output, comptime front: []const u8, value: []const u8) Error!void {
        try self.put(front);
        try self.base64(value);
        try self.put("\"}");
    }

    /// The text of base64 without quotes, padded (RFC 4648).
    pub fn base64(self: *Output, value: []const u8) Error!void {
        try self.room((value.len / 3 + 1) * 4);
        var at: usize = 0;
        while (value.len - at >= 3) : (at += 3) {
            const bits = @as(u24, value[at]) << 16 | @as(u24, value[at + 1]) << 8 | value[at + 2];
            try self.sextets(STANDARD, bits, 4);
        }
        switch (value.len - at) {
            1 => {
                try self.sextets(STANDARD, @as(u24, value[at]) << 16, 2);
                try self.put("==");
            },
            2 => {
                try self.sextets(STANDARD, @as(u24, value[at]) << 16 | @as(u24, value[at + 1]) << 8, 3);
                try self.put("=");
            },
            else => {},
        }
    }

    inline fn sextets(self: *Output, comptime alphabet: *const [64]u8, bits: u24, comptime count: usize) Error!void {
        try self.room(count);
        inline for (0..count) |index| {
            self.bytes[self.at + index] = alphabet[@as(u6, @truncate(bits >> (18 - 6 * index)))];
        }
        self.at += count;
    }

    /// The 22 characters of a uuid: base64url without padding (org.apache.kafka.common.Uuid.toString).
    pub fn uuid(self: *Output, value: *const [16]u8) Error!void {
        inline for (0..5) |index| {
            const at = 3 * index;
            try self.sextets(URL_SAFE, @as(u24, value[at]) << 16 | @as(u24, value[at + 1]) << 8 | value[at + 2], 4);
        }
        try self.sextets(URL_SAFE, @as(u24, value[15]) << 16, 2);
    }
};

/// Bytes of the character that `text` begins with, which is none of ASCII; `Odd` where it is not UTF-8 (RFC 3629).
pub fn sequence(text: []const u8) Error!usize {
    const first = text[0];
    const size: usize = switch (first) {
        0xC2...0xDF => 2,
        0xE0...0xEF => 3,
        0xF0...0xF4 => 4,
        else => return error.Odd,
    };
    if (text.len < size) return error.Odd;
    const low: u8 = switch (first) {
        0xE0 => 0xA0,
        0xF0 => 0x90,
        else => 0x80,
    };
    const high: u8 = switch (first) {
        0xED => 0x9F,
        0xF4 => 0x8F,
        else => 0xBF,
    };
    if (text[1] < low or text[1] > high) return error.Odd;
    for (text[2..size]) |next| {
        if (next & 0xC0 != 0x80) return error.Odd;
    }
    return size;
}

/// Whether `text` is UTF-8.
pub fn isText(text: []const u8) bool {
    var at: usize = 0;
    while (at < text.len) {
        while (text.len - at >= WIDTH) {
            const block: Block = text[at..][0..WIDTH].*;
            if (@reduce(.Or, block) >= 0x80) break;
            at += WIDTH;
        }
        if (at >= text.len) break;
        if (text[at] < 0x80) {
            at += 1;
        } else {
            at += sequence(text[at..]) catch return false;
        }
    }
    return true;
}
