//! What stands for payload that is not shown: its length, and a hash where equal values are to be recognized.
//!
//! The specification is `kafkasniff/payload.py`.

const calls = @import("call.zig");
const std = @import("std");

/// As `payload.HASH_BYTES`.
pub const HASH_BYTES = 8;

const Blake2b = std.crypto.hash.blake2.Blake2b(8 * HASH_BYTES);

/// How payload is hidden in one call.
pub const Hiding = struct {
    hashes: bool,
    /// The caller's. No copy of it outlives the call, and no output has it.
    salt: []const u8,
    person: [16]u8,
    /// The state behind the block that holds the salt, once there is a value.
    begun: ?Blake2b = null,

    /// Null where payload is shown.
    pub fn of(call: *const calls.Call) ?Hiding {
        return switch (call.wants.payload) {
            .dropped => .{ .hashes = false, .salt = "", .person = call.person },
            .hashed => .{ .hashes = true, .salt = call.salt[0..call.salt_size], .person = call.person },
            else => null,
        };
    }

    /// The hash of a value (BLAKE2b, RFC 7693), keyed with the salt.
    pub fn digest(self: *Hiding, value: []const u8) [HASH_BYTES]u8 {
        // Without any bytes behind it the salt's block is the last one, which is hashed in another way.
        var state = if (value.len > 0) self.behindSalt() else self.start();
        state.update(value);
        return state.finalResult();
    }

    fn start(self: *const Hiding) Blake2b {
        return .init(.{ .key = if (self.salt.len > 0) self.salt else null, .context = self.person });
    }

    /// Hashing the salt's block once halves the work for small values.
    fn behindSalt(self: *Hiding) Blake2b {
        if (self.begun) |state| return state;
        var state = self.start();
        if (self.salt.len > 0) {
            // A byte more makes it take the block; that byte is dropped again.
            state.update("\x00");
            state.buf_len = 0;
            @memset(&state.buf, 0);
        }
        self.begun = state;
        return state;
    }

    /// Leave nothing of the salt behind.
    pub fn forget(self: *Hiding) void {
        std.crypto.secureZero(u8, std.mem.asBytes(self));
    }
};
