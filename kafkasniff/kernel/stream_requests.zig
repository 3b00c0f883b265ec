//! What pairing needs of a request besides API, version and correlation id.

const std = @import("std");
const types = @import("stream_types.zig");

const MAX_TAGS = 1_000;

pub const Found = struct {
    /// Position of the body; 0: the header is invalid.
    body: usize = 0,
    /// A Produce with acks 0: no response is expected.
    silent: bool = false,
    /// The mechanism of the raw tokens that follow.
    mechanism: ?[]const u8 = null,
    /// Length of the client id; -1: null.
    client_id: i16 = -1,
    /// The header has tagged fields.
    tagged: bool = false,
};

/// Reads a request of at least eight bytes.
pub fn read(bytes: []const u8, facts: types.Facts) Found {
    var found = Found{};
    const body = bodyOf(bytes, facts.header, &found) orelse return .{};
    found.body = body;
    found.silent = facts.acks != 0 and acksOf(bytes[body..], facts.acks) == 0;
    if (facts.tokens_follow) found.mechanism = mechanismOf(bytes[body..]);
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

fn acksOf(body: []const u8, place: u2) ?i16 {
    var at: usize = 0;
    if (place == 2) {
        if (body.len < 2) return null;
        const length = std.mem.readInt(i16, body[0..2], .big);
        if (length < -1) return null;
        at = 2 + @as(usize, @intCast(@max(length, 0)));
    } else if (place == 3) {
        const length = varint(body, &at) orelse return null;
        at += length -| 1;
    }
    if (at + 2 > body.len) return null;
    return std.mem.readInt(i16, body[at..][0..2], .big);
}

/// Empty if it is truncated: tokens of an unknown mechanism follow.
fn mechanismOf(body: []const u8) []const u8 {
    if (body.len < 2) return "";
    const length = std.mem.readInt(i16, body[0..2], .big);
    if (length < 0 or length > body.len - 2) return "";
    return body[2..][0..@intCast(length)];
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
