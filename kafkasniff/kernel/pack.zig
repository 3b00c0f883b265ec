//! MessagePack into a buffer of the caller, from which `kafka/schema/packed.py` builds the same dicts as Python's decoders.
//!
//! Values that only Python can build are extensions, with little-endian numbers. A map or list whose size is known only
//! at its end gets a head of fixed size, which is overwritten then.

const std = @import("std");
const encoding = @import("base64.zig");
const Error = @import("reader.zig").Error;
const text_of = @import("text.zig");

pub const Extension = enum(u8) {
    /// Secret bytes: their position and size.
    secret = 1,
    /// A `records` field that Python decodes: its position and size.
    records = 2,
    /// The same, for a slice of a log.
    unaligned = 3,
    /// A batch that keeps its bytes: their position and size, and the batch as a map.
    held = 4,
    /// A record with headers that Python has to decode: the record as a map.
    headed = 5,
    /// A `records` field as JSON: its position and size, the number of bytes after its last whole batch, and the JSON.
    rendered = 6,
};

const HEAD_OF_EXTENSION = 6;
pub const HEAD_OF_ARRAY = 5;
pub const NULL = 0xC0;

pub fn headOfArray(bytes: *[HEAD_OF_ARRAY]u8, count: u32) void {
    bytes[0] = 0xDD;
    std.mem.writeInt(u32, bytes[1..5], count, .big);
}

pub const Pack = struct {
    bytes: []u8,
    at: usize = 0,
    /// There may be extensions.
    extensions: bool = false,

    const Self = @This();
    /// Python decodes the output and adds to it.
    pub const is_final = false;
    pub const is_tree = false;

    inline fn room(self: *Self, size: usize) Error!void {
        if (size > self.bytes.len - self.at) return error.NoRoom;
    }

    inline fn byte(self: *Self, value: u8) Error!void {
        try self.room(1);
        self.bytes[self.at] = value;
        self.at += 1;
    }

    inline fn put(self: *Self, text: []const u8) Error!void {
        try self.room(text.len);
        @memcpy(self.bytes[self.at..][0..text.len], text);
        self.at += text.len;
    }

    /// A mark and a big-endian number after it.
    inline fn number(self: *Self, mark: u8, comptime T: type, value: T) Error!void {
        const size = @divExact(@bitSizeOf(T), 8);
        try self.room(1 + size);
        self.bytes[self.at] = mark;
        std.mem.writeInt(T, self.bytes[self.at + 1 ..][0..size], value, .big);
        self.at += 1 + size;
    }

    // Structure

    /// The state that `restore` returns to.
    pub inline fn save(self: *const Self) usize {
        return self.at;
    }

    pub inline fn restore(self: *Self, mark: usize) void {
        self.at = mark;
    }

    /// Opens a map of `count` members and up to `more` optional ones. Returns the mark for `closeMap`.
    pub inline fn openMap(self: *Self, count: usize, more: usize) Error!usize {
        const mark = self.at;
        if (count + more <= 15) {
            try self.byte(0x80 | @as(u8, @intCast(count)));
        } else {
            try self.number(0xDE, u16, std.math.cast(u16, count) orelse return error.Odd);
        }
        return mark;
    }

    pub inline fn closeMap(self: *Self, mark: usize, count: usize) Error!void {
        if (self.bytes[mark] & 0xF0 == 0x80) {
            self.bytes[mark] = 0x80 | @as(u8, @intCast(count));
        } else {
            std.mem.writeInt(u16, self.bytes[mark + 1 ..][0..2], std.math.cast(u16, count) orelse return error.Odd, .big);
        }
    }

    /// Writes a member's name, given as `"name":`.
    pub inline fn key(self: *Self, literal: []const u8, _: bool) Error!void {
        try self.short(literal[1 .. literal.len - 2]);
    }

    /// Writes a member's name that is known at compile time.
    pub inline fn name(self: *Self, comptime text: []const u8, comptime _: bool) Error!void {
        try self.short(text);
    }

    /// Opens an array of `count` elements. Returns the mark for `endArray`.
    pub inline fn openArray(self: *Self, count: usize) Error!usize {
        const mark = self.at;
        if (count <= 15) {
            try self.byte(0x90 | @as(u8, @intCast(count)));
        } else {
            try self.number(0xDD, u32, std.math.cast(u32, count) orelse return error.Odd);
        }
        return mark;
    }

    /// Opens an array whose number of elements is given to `closeList`. Returns the mark for that.
    pub inline fn openList(self: *Self) Error!usize {
        const mark = self.at;
        try self.number(0xDD, u32, 0);
        return mark;
    }

    /// Called before each element.
    pub inline fn element(_: *Self, _: bool) Error!void {}

    pub inline fn closeArray(_: *Self) Error!void {}

    /// Closes an array that ends early.
    pub fn endArray(self: *Self, mark: usize, count: usize) Error!void {
        if (self.bytes[mark] & 0xF0 == 0x90) {
            self.bytes[mark] = 0x90 | @as(u8, @intCast(count));
        } else {
            try self.closeList(mark, count);
        }
    }

    pub inline fn closeList(self: *Self, mark: usize, count: usize) Error!void {
        std.mem.writeInt(u32, self.bytes[mark + 1 ..][0..4], std.math.cast(u32, count) orelse return error.Odd, .big);
    }

    // Values

    pub inline fn nothing(self: *Self) Error!void {
        try self.byte(NULL);
    }

    pub fn integer(self: *Self, value: i64) Error!void {
        if (value >= -32 and value < 128) return self.byte(@bitCast(@as(i8, @intCast(value))));
        if (std.math.cast(i16, value)) |small| return self.number(0xD1, i16, small);
        if (std.math.cast(i32, value)) |middle| return self.number(0xD2, i32, middle);
        return self.number(0xD3, i64, value);
    }

    pub fn boolean(self: *Self, value: bool) Error!void {
        try self.byte(if (value) 0xC3 else 0xC2);
    }

    /// The bits of a float64.
    pub fn float(self: *Self, bits: u64) Error!void {
        try self.number(0xCB, u64, bits);
    }

    /// Text. Bytes that are not UTF-8 are `Odd`.
    pub fn string(self: *Self, text: []const u8) Error!void {
        if (!text_of.isText(text)) return error.Odd;
        if (text.len < 256) return self.short(text);
        try self.number(0xDB, u32, std.math.cast(u32, text.len) orelse return error.Odd);
        try self.put(text);
    }

    /// Text shorter than 256 bytes.
    inline fn short(self: *Self, text: []const u8) Error!void {
        if (text.len < 32) {
            try self.byte(0xA0 | @as(u8, @intCast(text.len)));
        } else {
            try self.number(0xD9, u8, std.math.cast(u8, text.len) orelse return error.Odd);
        }
        try self.put(text);
    }

    /// Text that is known at compile time.
    pub inline fn word(self: *Self, comptime text: []const u8) Error!void {
        try self.short(text);
    }

    pub fn binary(self: *Self, value: []const u8) Error!void {
        if (value.len < 256) {
            try self.number(0xC4, u8, @intCast(value.len));
        } else {
            try self.number(0xC6, u32, std.math.cast(u32, value.len) orelse return error.Odd);
        }
        try self.put(value);
    }

    /// Payload is shown here. Python hides it after it has decoded the whole body.
    pub fn payload(self: *Self, value: []const u8) Error!void {
        try self.binary(value);
    }

    pub fn payloadText(self: *Self, value: []const u8) Error!void {
        try self.string(value);
    }

    pub fn uuid(self: *Self, value: *const [16]u8) Error!void {
        try self.room(23);
        self.bytes[self.at] = 0xA0 | 22;
        encoding.uuid(self.bytes[self.at + 1 ..][0..22], value);
        self.at += 23;
    }

    /// Bytes as the text of their base64.
    pub fn encoded(self: *Self, value: []const u8) Error!void {
        const size = encoding.length(value.len);
        try self.number(0xDB, u32, std.math.cast(u32, size) orelse return error.Odd);
        try self.room(size);
        encoding.write(self.bytes[self.at..][0..size], value);
        self.at += size;
    }

    /// A placeholder for `size` secret bytes at `position`, which Python may have to decode.
    pub fn withheld(self: *Self, position: usize, size: usize) Error!void {
        try self.place(.secret, position, size);
    }

    /// An extension that only names a range of the data.
    pub fn place(self: *Self, kind: Extension, position: usize, size: usize) Error!void {
        try self.room(18);
        self.extensions = true;
        self.bytes[self.at] = 0xD8;
        self.bytes[self.at + 1] = @intFromEnum(kind);
        self.at += 2;
        self.two(position, size);
    }

    inline fn two(self: *Self, first: u64, second: u64) void {
        std.mem.writeInt(u64, self.bytes[self.at..][0..8], first, .little);
        std.mem.writeInt(u64, self.bytes[self.at + 8 ..][0..8], second, .little);
        self.at += 16;
    }

    /// Writes the head of an extension whose bytes follow. Returns the mark for `closeExtension`.
    pub fn openHeld(self: *Self, position: usize, size: usize) Error!usize {
        const mark = self.at;
        try self.room(HEAD_OF_EXTENSION + 16);
        self.extensions = true;
        self.at += HEAD_OF_EXTENSION;
        self.two(position, size);
        return mark;
    }

    /// Writes the head of a `records` field that follows as JSON. `closeRendered` adds the number of bytes after its
    /// last whole batch.
    pub fn openRendered(self: *Self, position: usize, size: usize) Error!usize {
        const mark = try self.openHeld(position, size);
        try self.room(8);
        self.at += 8;
        return mark;
    }

    pub fn closeRendered(self: *Self, mark: usize, truncated: u64) Error!void {
        std.mem.writeInt(u64, self.bytes[mark + HEAD_OF_EXTENSION + 16 ..][0..8], truncated, .little);
        try self.closeExtension(mark, .rendered);
    }

    pub fn closeExtension(self: *Self, mark: usize, kind: Extension) Error!void {
        const size = self.at - mark - HEAD_OF_EXTENSION;
        self.bytes[mark] = 0xC9;
        std.mem.writeInt(u32, self.bytes[mark + 1 ..][0..4], std.math.cast(u32, size) orelse return error.Odd, .big);
        self.bytes[mark + 5] = @intFromEnum(kind);
    }

    /// Turns the output since `mark` into an extension.
    pub fn wrap(self: *Self, mark: usize, kind: Extension) Error!void {
        try self.room(HEAD_OF_EXTENSION);
        self.extensions = true;
        const size = self.at - mark;
        @memmove(self.bytes[mark + HEAD_OF_EXTENSION ..][0..size], self.bytes[mark..][0..size]);
        self.at += HEAD_OF_EXTENSION;
        try self.closeExtension(mark, kind);
    }
};
