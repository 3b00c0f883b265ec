//! Base64 (RFC 4648), into memory that is large enough.

const STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Characters that `size` bytes take, padded.
pub fn length(size: usize) usize {
    return (size + 2) / 3 * 4;
}

/// Writes `length(value.len)` characters.
pub fn write(into: []u8, value: []const u8) void {
    var at: usize = 0;
    var out: usize = 0;
    while (value.len - at >= 3) : (at += 3) {
        sextets(STANDARD, into[out..][0..4], @as(u24, value[at]) << 16 | @as(u24, value[at + 1]) << 8 | value[at + 2]);
        out += 4;
    }
    switch (value.len - at) {
        1 => {
            sextets(STANDARD, into[out..][0..2], @as(u24, value[at]) << 16);
            into[out..][2..4].* = "==".*;
        },
        2 => {
            sextets(STANDARD, into[out..][0..3], @as(u24, value[at]) << 16 | @as(u24, value[at + 1]) << 8);
            into[out + 3] = '=';
        },
        else => {},
    }
}

/// A uuid in the alphabet for URLs, without padding (org.apache.kafka.common.Uuid.toString).
pub fn uuid(into: *[22]u8, value: *const [16]u8) void {
    inline for (0..5) |index| {
        const at = 3 * index;
        const bits = @as(u24, value[at]) << 16 | @as(u24, value[at + 1]) << 8 | value[at + 2];
        sextets(URL_SAFE, into[4 * index ..][0..4], bits);
    }
    sextets(URL_SAFE, into[20..22], @as(u24, value[15]) << 16);
}

inline fn sextets(comptime alphabet: *const [64]u8, into: []u8, bits: u24) void {
    for (into, 0..) |*character, index| {
        character.* = alphabet[@as(u6, @truncate(bits >> @intCast(18 - 6 * index)))];
    }
}
