//! State that the `records` fields of one message share, and their compressed batches.

const calls = @import("call.zig");
const Error = @import("reader.zig").Error;
const Framing = @import("record_facts.zig").Framing;
const Hiding = @import("payload.zig").Hiding;
const marks = @import("record_marks.zig");

/// State that the `records` fields of one message share.
pub const Account = struct {
    call: *calls.Call,
    /// Number of records and headers that the message may still have.
    left: u64,
    /// Number of batches in `call.batches` that were used.
    used: u64 = 0,
    /// Compressed batches are requested, so that the output will be discarded.
    wanting: bool = false,
    /// How payload is hidden in JSON; null where it is shown.
    hiding: ?*Hiding = null,
    /// Framing of the keys and of the values of the current field, in final output.
    framing: [2]Framing = .{ .{}, .{} },
    /// Whether their schema ids are written.
    framed: [2]bool = .{ false, false },
    /// The field may belong to one of the brokers' own topics, which have no schema ids.
    may_be_internal: bool = false,

    /// Checks a record of final output for facts that interpreters add: if they may add any, it is `Odd`.
    pub inline fn look(self: *Account, out: anytype, key: ?[]const u8, value: ?[]const u8, is_control: bool) Error!void {
        if (!self.call.wants.show_secrets) {
            // Settings of Kafka Connect may be secret.
            if (key) |found| {
                if (value != null and marks.beginsWithMark(found, self.call.marks[0..self.call.marks_size])) return error.Odd;
            }
        }
        // Facts inside keys and values are hidden with them.
        if (out.hiding != null) return;
        if (is_control) {
            self.framing[0].pass(key);
            self.framing[1].pass(value);
            return;
        }
        self.framing[0].see(key);
        self.framing[1].see(value);
    }
};

/// Asks the caller to decompress a batch.
pub fn ask(account: *Account, wanted: calls.Batch) Error!void {
    const call = account.call;
    if (call.batches_wanted >= call.batches_size) return error.Odd;
    account.wanting = true;
    call.batches[call.batches_wanted] = wanted;
    call.batches_wanted += 1;
}

/// The records of the compressed batch at this position, for which `want` has asked.
pub fn decompressed(account: *Account, position: usize) Error![]const u8 {
    const call = account.call;
    if (account.used >= call.batches_given) return error.Odd;
    const given = call.batches[account.used];
    account.used += 1;
    const begin = given.records orelse return error.Odd;
    if (given.position != position) return error.Odd;
    return begin[0..given.size];
}
