//! Mutates bodies and has the kernel write their summaries; mutates tables, too, of which those that are taken are used.
//!
//! The input ends where its memory does, and a byte written after the output ends the process.

const fuzz = @import("fuzz.zig");
const kernel = @import("kernel");
const std = @import("std");

/// An input to begin with.
const Seed = extern struct {
    table: [*]const u8,
    bytes: [*]const u8,
    size: u64,
};

const Run = extern struct {
    call: *kernel.summaries.Call,
    seeds: [*]const Seed,
    seeds_count: u64,
    /// Memory for an input, at whose end nothing may be read.
    room: [*]u8,
    room_size: u64,
    executions: u64,
    random: u64,
    /// The last input, for a look at it.
    seed: u64,
    size: u64,
    session: i64,
    /// How many ended in each status; of tables how many were refused and taken.
    ended: [6]u64,
};

const MARK = 0xA5;
const MARKED = 64;

fn write(run: *Run, table: [*]const u8, data: []const u8, random: *fuzz.Random) usize {
    const call = run.call;
    const names = call.names.?;
    defer call.names = names;
    // The table stays as it is: whatever is asked for has no name.
    const used = names.used;
    const state = names.*;
    names.answered = if (random.below(4) == 0) 1 else 0;
    names.partitions = run.session;
    if (random.below(8) == 0) call.names = null;
    var items: [2]kernel.calls.Item = undefined;
    for (&items, 0..) |*item, number| item.* = .{
        .program = table,
        .start = if (number == 0) 0 else data.len / 2,
        .end = data.len,
        .output_end = 0,
        .notes_end = 0,
        .after = 0,
        .status = .odd,
        .records = 0,
        .truncated = 0,
        .looked_at = 0,
        .extensions = 0,
    };
    const size = call.output_size;
    // Now and then there is no room at some place.
    if (random.below(8) == 0) call.output_size = random.below(200);
    defer call.output_size = size;
    const behind = call.output[call.output_size..][0..MARKED];
    @memset(behind, MARK);
    _ = kernel.kafkasniff_summaries(call, data.ptr, data.len, &items, items.len);
    for (behind) |byte| if (byte != MARK) @trap();
    if (call.written > call.output_size) @trap();
    if (names.wanted > names.wants_size or names.used < used) @trap();
    for (names.wants[0..names.wanted]) |place| {
        const found = &names.topics[place];
        if (found.state != .wanted) @trap();
        found.* = .{ .id = @splat(0), .text = null, .size = 0, .state = .wanted };
    }
    names.* = state;
    return @intCast(@intFromEnum(items[0].status));
}

fn changed(run: *Run, bytes: []const u8, random: *fuzz.Random, most: u64) []u8 {
    const size = @min(bytes.len, run.room_size);
    const cut = if (random.below(4) == 0) random.below(size + 1) else size;
    const input = run.room[run.room_size - cut .. run.room_size];
    @memcpy(input, bytes[0..cut]);
    for (0..random.below(most)) |_| fuzz.change(input, random);
    return input;
}

pub export fn kafkasniff_fuzz_summaries(run: *Run) void {
    var random = fuzz.Random{ .state = run.random | 1 };
    for (0..run.executions) |_| {
        run.seed = random.below(run.seeds_count);
        const seed = run.seeds[run.seed];
        const input = changed(run, seed.bytes[0..seed.size], &random, 4);
        run.size = input.len;
        run.session = @as(i64, @intCast(random.below(5))) - 1;
        run.ended[write(run, seed.table, input, &random)] += 1;
    }
    run.random = random.state;
}

pub export fn kafkasniff_fuzz_tables(run: *Run) void {
    var random = fuzz.Random{ .state = run.random | 1 };
    for (0..run.executions) |_| {
        const seed = run.seeds[random.below(run.seeds_count)];
        const whole = @as(*const [2]u32, @ptrCast(@alignCast(seed.table)))[1];
        const size = whole / 4 * 4;
        if (size > run.room_size) continue;
        const input = run.room[run.room_size - size .. run.room_size];
        @memcpy(input, seed.table[0..size]);
        for (0..1 + random.below(3)) |_| fuzz.change(input, &random);
        if (random.below(2) == 0) std.mem.writeInt(u32, input[4..8], @intCast(size), .little);
        const taken = kernel.kafkasniff_check_summary(input.ptr, size) == 1;
        run.ended[@intFromBool(taken)] += 1;
        if (taken) _ = write(run, input.ptr, seed.bytes[0..seed.size], &random);
    }
    run.random = random.state;
}
