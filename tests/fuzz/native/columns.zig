//! Memory for columns of records: of the sizes that were measured, now and then less. A byte written after one of them
//! ends the process.

const fuzz = @import("fuzz.zig");
const kernel = @import("kernel");
const std = @import("std");

const columns = kernel.columns;

const COUNTS = .{ "rows", "headers", "key_bytes", "value_bytes", "header_key_bytes", "header_value_bytes" };
const MARK = 0xA5;
const MARKED = 64;

/// Hands out memory with a guard after each piece.
pub const Memory = struct {
    bytes: []u8,
    used: usize = 0,
    ends: [32]usize = undefined,
    pieces: usize = 0,

    pub fn take(self: *Memory, comptime T: type, count: u64) [*]T {
        self.used = std.mem.alignForward(usize, self.used, 8);
        const piece = self.bytes[self.used..][0 .. count * @sizeOf(T)];
        self.used += piece.len;
        @memset(self.bytes[self.used..][0..MARKED], MARK);
        self.ends[self.pieces] = self.used;
        self.pieces += 1;
        self.used += MARKED;
        return @ptrCast(@alignCast(piece.ptr));
    }

    fn bits(self: *Memory, count: u64) [*]u8 {
        const size = (count + 7) / 8;
        const found = self.take(u8, size);
        @memset(found[0..size], 0);
        return found;
    }

    pub fn check(self: *const Memory) void {
        for (self.ends[0..self.pieces]) |end| {
            for (self.bytes[end..][0..MARKED]) |byte| if (byte != MARK) @trap();
        }
    }
};

pub fn number(random: *fuzz.Random) i64 {
    return switch (random.below(4)) {
        0 => 0,
        1 => std.math.maxInt(i64) - @as(i64, @intCast(random.below(3))),
        2 => std.math.minInt(i64) + @as(i64, @intCast(random.below(3))),
        else => @bitCast(random.next()),
    };
}

fn room(binary: *columns.Binary, memory: *Memory, count: u64, size: u64) void {
    binary.offsets = memory.take(i32, count + 1);
    binary.data = memory.take(u8, size);
    binary.valid = memory.bits(count);
    binary.size = size;
}

/// As much room as was measured, or less.
pub fn prepare(call: *columns.Columns, memory: *Memory, random: *fuzz.Random) void {
    var all = columns.Counts{};
    for (call.batches[0..call.batches_size]) |batch| {
        if (batch.status != .done) continue;
        inline for (COUNTS) |name| {
            @field(all, name) += @field(batch.counts, name);
        }
    }
    if (random.below(16) == 0) {
        inline for (COUNTS) |name| {
            if (random.below(4) == 0) @field(all, name) = random.below(@field(all, name) + 1);
        }
    }
    call.rows_size = all.rows;
    call.header_rows_size = all.headers;
    call.offset = memory.take(i64, all.rows);
    call.timestamp = memory.take(i64, all.rows);
    call.timestamp_valid = memory.bits(all.rows);
    call.sequence = memory.take(i32, all.rows);
    call.header_offsets = memory.take(i32, all.rows + 1);
    room(&call.key, memory, all.rows, all.key_bytes);
    room(&call.value, memory, all.rows, all.value_bytes);
    room(&call.header_key, memory, all.headers, all.header_key_bytes);
    room(&call.header_value, memory, all.headers, all.header_value_bytes);
}
