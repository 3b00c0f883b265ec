//! Mutates records of magic 2 and sets of messages, and has the kernel measure and write them as columns.
//!
//! Columns have the sizes that were measured, now and then less; a byte written after one of them ends the process.

const fuzz = @import("fuzz.zig");
const kernel = @import("kernel");
const std = @import("std");

const columns = kernel.columns;

/// An input to begin with.
const Seed = extern struct {
    bytes: [*]const u8,
    size: u64,
    magic: u64,
};

const Run = extern struct {
    call: *columns.Columns,
    seeds: [*]const Seed,
    seeds_count: u64,
    /// Memory for an input, at whose end nothing may be read.
    room: [*]u8,
    room_size: u64,
    /// Memory for columns.
    output: [*]u8,
    output_size: u64,
    executions: u64,
    random: u64,
    /// The last input, for a look at it.
    seed: u64,
    size: u64,
    /// Batches that were taken, and those that were not; writings that were done, and those that ended early.
    taken: u64,
    refused: u64,
    done: u64,
    ended: u64,
};

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

fn batchOf(bytes: []const u8, magic: u64, random: *fuzz.Random) columns.Batch {
    const few = random.below(8) == 0;
    return .{
        .records = if (bytes.len == 0) null else bytes.ptr,
        .size = bytes.len,
        .base_offset = number(random),
        .base_timestamp = number(random),
        .append_timestamp = number(random),
        .most_records = if (few) random.below(4) else std.math.maxInt(u64),
        .most_headers = if (few) random.below(4) else std.math.maxInt(u64),
        .base_sequence = @bitCast(@as(u32, @truncate(random.next()))),
        .magic = if (random.below(32) == 0) @truncate(random.below(5)) else @truncate(magic),
        .appended = @truncate(random.below(2)),
        .spare = 0,
        .status = .odd,
        .found = .{},
        .counts = .{},
        .last_offset = 0,
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

pub export fn kafkasniff_fuzz_columns(run: *Run) void {
    var random = fuzz.Random{ .state = run.random | 1 };
    const call = run.call;
    for (0..run.executions) |_| {
        run.seed = random.below(run.seeds_count);
        const seed = run.seeds[run.seed];
        const input = fuzz.changed(run.room[0..run.room_size], seed.bytes[0..seed.size], 8, &random);
        run.size = input.len;
        if (seed.magic < 2 and random.below(8) > 0) fuzz.sum(input);
        const middle = if (random.below(4) == 0) random.below(input.len + 1) else input.len;
        var batches = [_]columns.Batch{
            batchOf(input[0..middle], seed.magic, &random),
            batchOf(input[middle..], seed.magic, &random),
            batchOf(input, seed.magic, &random),
        };
        call.batches = &batches;
        call.batches_size = batches.len;
        call.first_time = number(&random);
        call.last_time = number(&random);
        kernel.kafkasniff_columns_measure(call);
        for (&batches) |*batch| {
            if (batch.status == .done) run.taken += 1 else run.refused += 1;
            // The caller refuses some, too.
            if (random.below(16) == 0) batch.status = .odd;
        }
        var memory = Memory{ .bytes = run.output[0..run.output_size] };
        prepare(call, &memory, &random);
        if (kernel.kafkasniff_columns_write(call) == .done) run.done += 1 else run.ended += 1;
        memory.check();
    }
    run.random = random.state;
}
