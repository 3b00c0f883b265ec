//! Reads numbers and slices from bytes. Every read is checked against the end of the bytes: a value that does not fit
//! is `Odd`.

const std = @import("std");

/// Why a walk ended early.
pub const Error = error{
    /// Python's walker has to decode the value and report its problem.
    Odd,
    /// The output is full.
    NoRoom,
};

pub const Reader = struct {
    bytes: []const u8,
    at: usize = 0,

    pub inline fn left(self: *const Reader) usize {
        return self.bytes.len - self.at;
    }

    /// The next `size` bytes.
    pub inline fn take(self: *Reader, size: usize) Error![]const u8 {
        if (size > self.left()) return error.Odd;
        const found = self.bytes[self.at..][0..size];
        self.at += size;
        return found;
    }

    pub inline fn byte(self: *Reader) Error!u8 {
        if (self.at >= self.bytes.len) return error.Odd;
        const found = self.bytes[self.at];
        self.at += 1;
        return found;
    }

    /// A big-endian number.
    pub inline fn int(self: *Reader, comptime T: type) Error!T {
        const size = @divExact(@bitSizeOf(T), 8);
        const found = try self.take(size);
        return std.mem.readInt(T, found[0..size], .big);
    }

    /// Whether the next string is not null, judged by its length alone.
    pub inline fn hasText(self: *const Reader, is_compact: bool) bool {
        const rest = self.bytes[self.at..];
        return if (is_compact) rest.len > 0 and rest[0] != 0 else rest.len > 1 and rest[0] < 0x80;
    }

    /// An unsigned varint of at most 5 bytes, which carry 35 bits (KIP-482).
    pub inline fn varint(self: *Reader) Error!u64 {
        const first = try self.byte();
        if (first < 0x80) return first;
        return self.longVarint(first, 5);
    }

    /// A zigzag varint of at most 5 bytes: a length or a count in a record. Bits beyond 32 are `Odd`.
    pub inline fn zigzag32(self: *Reader) Error!i64 {
        const first = try self.byte();
        const value = if (first < 0x80) first else try self.longVarint(first, 5);
        if (value > 0xFFFF_FFFF) return error.Odd;
        return @as(i64, @intCast(value >> 1)) ^ -@as(i64, @intCast(value & 1));
    }

    /// The same of at most 10 bytes: a timestamp delta. Bits beyond 64 are `Odd`.
    pub inline fn zigzag64(self: *Reader) Error!i64 {
        const first = try self.byte();
        const value = if (first < 0x80) first else try self.longVarint(first, 10);
        return @as(i64, @bitCast(value >> 1)) ^ -%@as(i64, @bitCast(value & 1));
    }

    fn longVarint(self: *Reader, first: u8, comptime most: usize) Error!u64 {
        var value: u64 = first & 0x7F;
        inline for (1..most) |index| {
            const next = try self.byte();
            const shift = 7 * index;
            if (shift == 63 and next > 1) return error.Odd;
            value |= @as(u64, next & 0x7F) << shift;
            if (next < 0x80) return value;
        }
        return error.Odd;
    }
};
