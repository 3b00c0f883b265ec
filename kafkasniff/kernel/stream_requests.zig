//! The header of a request.

const std = @import("std");

const MAX_TAGS = 1_000;

pub const Found = struct {
    /// Position of the body; 0: the header is invalid.
    body: usize = 0,
    /// Length of the client id; -1: null.
    client_id: i16 = -1,
    /// The header has tagged fields.
    tagged: bool = false,
};

/// Reads the header, of this version, of a request of at least eight bytes.
pub fn read(bytes: []const u8, header: u2) Found {
    var found = Found{};
    found.body = bodyOf(bytes, header, &found) orelse return .{};
    return found;
}

fn bodyOf(bytes: []const u8, header: u2, found: *Found) ?usize {
    var at: usize = 8;
    if (header == 0) return at;
    if (bytes.len < 10) return null;
    const length = std.mem.readInt(i16, bytes[8..10], .big);
    found.client_id = length;
    at = 10;
    if (length < -1) return null;
    if (length > 0) {
        if (length > bytes.len - at) return null;
        at += @intCast(length);
    }
    if (header == 1) return at;
    // None takes one byte; readers of regular messages skip that.
    found.tagged = at < bytes.len and bytes[at] != 0;
    const tags = varint(bytes, &at) orelse return null;
    if (tags > MAX_TAGS) return null;
    for (0..tags) |_| {
        _ = varint(bytes, &at) orelse return null;
        const size = varint(bytes, &at) orelse return null;
        if (size > bytes.len - at) return null;
        at += size;
    }
    return at;
}

fn varint(bytes: []const u8, at: *usize) ?u32 {
    var value: u64 = 0;
    for (0..5) |i| {
        if (at.* >= bytes.len) return null;
        const byte = bytes[at.*];
        at.* += 1;
        value |= @as(u64, byte & 0x7F) << @intCast(7 * i);
        if (byte < 0x80) return std.math.cast(u32, value);
    }
    return null;
}
