//! Placeholders for payload that is not shown: its length, and a hash if equal values are to be recognizable.
//!
//! The specification is `kafkasniff/redact/payload.py`. The hash is BLAKE2b (RFC 7693). This implementation works on rows of
//! four numbers, which takes half the time of std's, and hashes the salt's block once for all values of a call.

const calls = @import("call.zig");
const std = @import("std");

/// As `payload.HASH_BYTES`.
pub const HASH_BYTES = 8;

const BLOCK = 128;
const MAX_SALT = 64;

/// How payload is hidden in one call.
pub const Hiding = struct {
    hashes: bool,
    /// The state before the first block: it depends on the sizes of hash and salt and on the personalization.
    start: State = undefined,
    /// The salt, which is the first block unless it is empty. No copy of it outlives the call.
    salt: [BLOCK]u8 = undefined,
    salt_size: usize = 0,
    /// The state after the salt.
    begun: State = undefined,

    /// Initializes it in place; false if payload is shown. A salt that is too long is truncated.
    pub fn begin(self: *Hiding, call: *const calls.Call) bool {
        switch (call.wants.payload) {
            .dropped => self.* = .{ .hashes = false },
            .hashed => {
                self.* = .{ .hashes = true, .salt_size = @min(call.salt_size, MAX_SALT) };
                self.start = State.init(self.salt_size, &call.person);
                self.salt = @splat(0);
                @memcpy(self.salt[0..self.salt_size], call.salt[0..self.salt_size]);
                self.begun = self.start;
                if (self.salt_size > 0) self.begun.mix(&self.salt, BLOCK, false);
            },
            else => return false,
        }
        return true;
    }

    /// The hash of a value.
    pub fn digest(self: *const Hiding, value: []const u8) [HASH_BYTES]u8 {
        if (value.len == 0 and self.salt_size > 0) {
            // The salt's block is also the last one.
            var alone = self.start;
            alone.mix(&self.salt, BLOCK, true);
            return alone.digest();
        }
        var state = self.begun;
        var left = value;
        while (left.len > BLOCK) : (left = left[BLOCK..]) state.mix(left[0..BLOCK], BLOCK, false);
        var last: [BLOCK]u8 = @splat(0);
        @memcpy(last[0..left.len], left);
        state.mix(&last, left.len, true);
        return state.digest();
    }

    /// Erases the salt.
    pub fn forget(self: *Hiding) void {
        std.crypto.secureZero(u8, std.mem.asBytes(self));
    }
};

const Row = @Vector(4, u64);

/// The chain value of BLAKE2b as two rows, and the number of bytes hashed.
const State = struct {
    low: Row,
    high: Row,
    taken: u64,

    const IV_LOW: Row = .{ 0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1 };
    const IV_HIGH: Row = .{ 0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179 };

    const SIGMA = [10][16]u8{
        .{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
        .{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
        .{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
        .{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
        .{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
        .{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
        .{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
        .{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
        .{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
        .{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
    };
    const ROUNDS = 12;

    fn init(salt_size: usize, person: *const [16]u8) State {
        var state = State{ .low = IV_LOW, .high = IV_HIGH, .taken = 0 };
        // The parameter block: sizes, fan-out and depth of 1, and the personalization at its end.
        state.low[0] ^= 0x0101_0000 | @as(u64, salt_size) << 8 | HASH_BYTES;
        state.high[2] ^= std.mem.readInt(u64, person[0..8], .little);
        state.high[3] ^= std.mem.readInt(u64, person[8..16], .little);
        return state;
    }

    /// Mixes in a block, of which `size` bytes count.
    fn mix(self: *State, block: *const [BLOCK]u8, size: usize, is_last: bool) void {
        self.taken += size;
        var words: [16]u64 = undefined;
        inline for (&words, 0..) |*word, index| word.* = std.mem.readInt(u64, block[8 * index ..][0..8], .little);
        var a, var b, var c = .{ self.low, self.high, IV_LOW };
        var d = IV_HIGH ^ Row{ self.taken, 0, if (is_last) std.math.maxInt(u64) else 0, 0 };
        inline for (0..ROUNDS) |round| {
            const order = SIGMA[round % 10];
            half(&a, &b, &c, &d, pick(&words, order, 0), pick(&words, order, 1));
            // Columns become diagonals, and columns again.
            b = turn(b, 1);
            c = turn(c, 2);
            d = turn(d, 3);
            half(&a, &b, &c, &d, pick(&words, order, 8), pick(&words, order, 9));
            b = turn(b, 3);
            c = turn(c, 2);
            d = turn(d, 1);
        }
        self.low ^= a ^ c;
        self.high ^= b ^ d;
    }

    inline fn pick(words: *const [16]u64, comptime order: [16]u8, comptime first: usize) Row {
        return .{
            words[order[first]],
            words[order[first + 2]],
            words[order[first + 4]],
            words[order[first + 6]],
        };
    }

    inline fn turn(row: Row, comptime places: i32) Row {
        return @shuffle(u64, row, undefined, @Vector(4, i32){
            places & 3,
            (places + 1) & 3,
            (places + 2) & 3,
            (places + 3) & 3,
        });
    }

    /// The function G on four columns, or diagonals, at once.
    inline fn half(a: *Row, b: *Row, c: *Row, d: *Row, x: Row, y: Row) void {
        a.* = a.* +% b.* +% x;
        d.* = rotated(d.* ^ a.*, 32);
        c.* = c.* +% d.*;
        b.* = rotated(b.* ^ c.*, 24);
        a.* = a.* +% b.* +% y;
        d.* = rotated(d.* ^ a.*, 16);
        c.* = c.* +% d.*;
        b.* = rotated(b.* ^ c.*, 63);
    }

    inline fn rotated(row: Row, comptime bits: u6) Row {
        return std.math.rotr(Row, row, bits);
    }

    fn digest(self: *const State) [HASH_BYTES]u8 {
        var found: [HASH_BYTES]u8 = undefined;
        std.mem.writeInt(u64, &found, self.low[0], .little);
        return found;
    }
};
