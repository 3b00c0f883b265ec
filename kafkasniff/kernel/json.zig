//! JSON text into a buffer of the caller, identical to orjson's output for the same values.
//!
//! `Json`, `pack.Pack` and `tree.Tree` have the same functions, so that one walk serves them all.

const std = @import("std");
const encoding = @import("base64.zig");
const Error = @import("reader.zig").Error;
const Hiding = @import("payload.zig").Hiding;
const text_of = @import("text.zig");
const times = @import("times.zig");

/// How byte strings are shown.
pub const Form = enum(u2) {
    /// A string if they are UTF-8, else `{"base64"}`.
    auto = 0,
    base64 = 1,
    hex = 2,
    _,
};

const WIDTH = text_of.WIDTH;
/// Bytes that are scanned together in long text.
const FAR = 4 * WIDTH;

const HEX = "0123456789abcdef";

pub const Json = struct {
    bytes: []u8,
    at: usize = 0,
    form: Form = .auto,
    /// How payload is hidden; null if it is shown.
    hiding: ?*Hiding = null,

    const Self = @This();
    /// The output is final: Python cannot add anything to a body later.
    pub const is_final = true;
    pub const is_tree = false;

    /// The state that `restore` returns to.
    pub inline fn save(self: *const Self) usize {
        return self.at;
    }

    pub inline fn restore(self: *Self, mark: usize) void {
        self.at = mark;
    }

    /// Ensures that `size` bytes fit.
    pub inline fn room(self: *Self, size: usize) Error!void {
        if (size > self.bytes.len - self.at) return error.NoRoom;
    }

    pub inline fn put(self: *Self, text: []const u8) Error!void {
        try self.room(text.len);
        @memcpy(self.bytes[self.at..][0..text.len], text);
        self.at += text.len;
    }

    pub inline fn byte(self: *Self, value: u8) Error!void {
        try self.room(1);
        self.bytes[self.at] = value;
        self.at += 1;
    }

    // Structure

    /// Opens an object of `count` members and up to `more` optional ones. Returns the mark for `closeMap`.
    pub inline fn openMap(self: *Self, _: usize, _: usize) Error!usize {
        try self.byte('{');
        return 0;
    }

    pub inline fn closeMap(self: *Self, _: usize, _: usize) Error!void {
        try self.byte('}');
    }

    /// The next object's members are those of the current one.
    pub inline fn join(_: *Self) void {}

    /// Closes an object; the one that was joined begins at `begin`.
    pub inline fn closeJoined(self: *Self, _: usize, begin: usize) Error!void {
        self.bytes[begin] = ',';
    }

    /// Writes a member's name, given as `"name":`.
    pub inline fn key(self: *Self, literal: []const u8, is_first: bool) Error!void {
        if (!is_first) try self.byte(',');
        try self.put(literal);
    }

    /// Writes a member's name that is known at compile time.
    pub inline fn name(self: *Self, comptime text: []const u8, comptime is_first: bool) Error!void {
        try self.put((if (is_first) "\"" else ",\"") ++ text ++ "\":");
    }

    /// Opens an array of `count` elements. Returns the mark for `endArray`.
    pub inline fn openArray(self: *Self, _: usize) Error!usize {
        try self.byte('[');
        return 0;
    }

    /// Opens an array whose number of elements is given to `closeList`. Returns the mark for that.
    pub inline fn openList(self: *Self) Error!usize {
        try self.byte('[');
        return 0;
    }

    /// The member of a fetch session, whose value is given as JSON.
    pub fn session(self: *Self, text: []const u8) Error!void {
        try self.put(",\"_session\":");
        try self.put(text);
    }

    /// Called before each element.
    pub inline fn element(self: *Self, is_first: bool) Error!void {
        if (!is_first) try self.byte(',');
    }

    pub inline fn closeArray(self: *Self) Error!void {
        try self.byte(']');
    }

    /// Closes an array that ends early.
    pub inline fn endArray(self: *Self, _: usize, _: usize) Error!void {
        try self.byte(']');
    }

    pub inline fn closeList(self: *Self, _: usize, _: usize) Error!void {
        try self.byte(']');
    }

    // Values

    pub inline fn nothing(self: *Self) Error!void {
        try self.put("null");
    }

    /// Text that is known at compile time and needs no escapes.
    pub inline fn word(self: *Self, comptime text: []const u8) Error!void {
        try self.put("\"" ++ text ++ "\"");
    }

    /// Numbers with a fraction are left to orjson.
    pub fn float(_: *Self, _: u64) Error!void {
        return error.Odd;
    }

    /// A placeholder for `size` secret bytes at `position`.
    pub fn withheld(self: *Self, _: usize, size: usize) Error!void {
        try self.put("{\"redacted\":");
        try self.integer(@intCast(size));
        try self.byte('}');
    }

    /// Bytes as base64, whatever the form.
    pub fn encoded(self: *Self, value: []const u8) Error!void {
        try self.byte('"');
        try self.base64(value);
        try self.byte('"');
    }

    pub fn integer(self: *Self, value: i64) Error!void {
        var digits: [20]u8 = undefined;
        const first = times.decimal(&digits, value);
        try self.put(digits[first..]);
    }

    pub fn boolean(self: *Self, value: bool) Error!void {
        try self.put(if (value) "true" else "false");
    }

    /// A string in quotes. Text that is not UTF-8 is `Odd`.
    pub fn string(self: *Self, text: []const u8) Error!void {
        try self.byte('"');
        var at: usize = 0;
        // Text that is long enough for several blocks at once.
        var far: usize = 0;
        while (at < text.len) {
            if (self.copied(WIDTH, text, at)) |plain| {
                at += plain;
                if (plain == WIDTH) {
                    if (at < far) continue;
                    while (self.copied(FAR, text, at)) |size| : (at += size) {
                        if (size == 0) break;
                    }
                    far = at + FAR;
                    continue;
                }
            } else if (self.copied(WIDTH / 2, text, at)) |plain| {
                at += plain;
                if (plain == WIDTH / 2) continue;
            }
            at = try self.one(text, at);
        }
        try self.byte('"');
    }

    /// Copies the next `size` bytes up to the first one that needs an escape or a check, and returns their number.
    /// Blocks longer than `WIDTH` are copied whole or not at all. Null if there are not enough bytes, or no room.
    inline fn copied(self: *Self, comptime size: usize, text: []const u8, at: usize) ?usize {
        if (text.len - at < size or self.bytes.len - self.at < size) return null;
        const block: @Vector(size, u8) = text[at..][0..size].*;
        // As signed numbers, control characters and non-ASCII bytes are the small ones.
        const special = (@as(@Vector(size, i8), @bitCast(block)) < @as(@Vector(size, i8), @splat(0x20))) |
            (block == @as(@Vector(size, u8), @splat('"'))) |
            (block == @as(@Vector(size, u8), @splat('\\')));
        if (size > WIDTH and @reduce(.Or, special)) return 0;
        self.bytes[self.at..][0..size].* = block;
        const bits: @Int(.unsigned, size) = if (size > WIDTH) 0 else @bitCast(special);
        const plain = if (bits == 0) size else @ctz(bits);
        self.at += plain;
        return plain;
    }

    /// Writes one character, escaped if JSON requires it. Returns the position of the next one.
    inline fn one(self: *Self, text: []const u8, at: usize) Error!usize {
        const first = text[at];
        if (first >= 0x80) {
            const size = try text_of.sequence(text[at..]);
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
    pub fn binary(self: *Self, value: []const u8) Error!void {
        const form = self.form;
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
        try self.hex(value);
        try self.put("\"}");
    }

    /// Payload: bytes of an application.
    pub fn payload(self: *Self, value: []const u8) Error!void {
        const hiding = self.hiding orelse return self.binary(value);
        try self.put("{");
        try self.standIn(hiding, value);
        try self.put("}");
    }

    /// Payload that is text; as `string`.
    pub fn payloadText(self: *Self, value: []const u8) Error!void {
        if (self.hiding == null) return self.string(value);
        if (!text_of.isText(value)) return error.Odd;
        try self.payload(value);
    }

    /// The members of the placeholder for payload.
    pub fn standIn(self: *Self, hiding: *Hiding, value: []const u8) Error!void {
        if (hiding.hashes) {
            try self.put("\"hash\":\"");
            try self.hex(&hiding.digest(value));
            try self.put("\",");
        }
        try self.put("\"length\":");
        try self.integer(@intCast(value.len));
    }

    fn hex(self: *Self, value: []const u8) Error!void {
        try self.room(2 * value.len);
        for (value) |one_byte| {
            try self.byte(HEX[one_byte >> 4]);
            try self.byte(HEX[one_byte & 15]);
        }
    }

    fn wrapped(self: *Self, comptime front: []const u8, value: []const u8) Error!void {
        try self.put(front);
        try self.base64(value);
        try self.put("\"}");
    }

    /// Padded base64 without quotes.
    pub fn base64(self: *Self, value: []const u8) Error!void {
        const size = encoding.length(value.len);
        try self.room(size);
        encoding.write(self.bytes[self.at..][0..size], value);
        self.at += size;
    }

    /// The 22 characters of a uuid, in quotes.
    pub fn uuid(self: *Self, value: *const [16]u8) Error!void {
        try self.room(24);
        self.bytes[self.at] = '"';
        encoding.uuid(self.bytes[self.at + 1 ..][0..22], value);
        self.bytes[self.at + 23] = '"';
        self.at += 24;
    }
};
