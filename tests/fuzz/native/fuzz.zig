//! Mutates bodies and `records` fields and gives them to every exported function, in one process and without Python.
//!
//! `tests/fuzz/native_kernel.py` compiles and calls it. The input ends where its memory does: a page that cannot be read
//! follows. What fails a check of ReleaseSafe, or reads that page, ends the process.

const calls = @import("kernel").calls;
const kernel = @import("kernel");
const std = @import("std");

pub const panic = kernel.panic;

comptime {
    _ = @import("exchanges.zig");
    _ = @import("streams.zig");
    _ = @import("lines.zig");
}

const EDGES = [_]u8{ 0, 1, 2, 0x1F, 0x22, 0x5C, 0x61, 0x7F, 0x80, 0x81, 0xC2, 0xED, 0xF4, 0xFE, 0xFF };

/// An input to begin with.
const Seed = extern struct {
    /// Null: a `records` field.
    program: ?[*]const u8,
    bytes: [*]const u8,
    size: u64,
};

const Run = extern struct {
    call: *calls.Call,
    seeds: [*]const Seed,
    seeds_count: u64,
    /// Memory for an input, at whose end nothing may be read.
    room: [*]u8,
    room_size: u64,
    executions: u64,
    random: u64,
    /// The last input, for a look at it: which seed, its size, what came of it.
    seed: u64,
    size: u64,
    status: i32,
    spare: u32,
    /// How many ended in each status.
    ended: [5]u64,
};

pub const Random = struct {
    state: u64,

    pub fn next(self: *Random) u64 {
        // xorshift64*
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        return self.state *% 0x2545F4914F6CDD1D;
    }

    pub fn below(self: *Random, limit: u64) u64 {
        return (self.next() >> 16) % limit;
    }
};

pub fn change(bytes: []u8, random: *Random) void {
    if (bytes.len == 0) return;
    const at = random.below(bytes.len);
    switch (random.below(8)) {
        0 => bytes[at] ^= @as(u8, 1) << @as(u3, @intCast(random.below(8))),
        1, 2 => bytes[at] = EDGES[random.below(EDGES.len)],
        3 => bytes[at] = @truncate(random.next()),
        4 => bytes[at] +%= @truncate(random.below(5) -% 2),
        5 => {
            const size = @min(bytes.len - at, 1 + random.below(8));
            @memset(bytes[at..][0..size], EDGES[random.below(EDGES.len)]);
        },
        6 => {
            // Bytes of the input somewhere else in it.
            const from = random.below(bytes.len);
            const size = @min(bytes.len - @max(at, from), 1 + random.below(16));
            if (at < from) {
                for (0..size) |index| bytes[at + index] = bytes[from + index];
            } else {
                var index: usize = size;
                while (index > 0) {
                    index -= 1;
                    bytes[at + index] = bytes[from + index];
                }
            }
        },
        else => {
            // A length that is a little wrong, or as large as it can be.
            if (bytes.len - at < 4) return;
            const value = std.mem.readInt(i32, bytes[at..][0..4], .big);
            const wrong = switch (random.below(4)) {
                0 => value +% 1,
                1 => value -% 1,
                2 => std.math.maxInt(i32),
                else => -1,
            };
            std.mem.writeInt(i32, bytes[at..][0..4], wrong, .big);
        },
    }
}

/// A changed copy of a seed, one in `cuts` of them cut, which ends where the room does.
pub fn changed(room: []u8, seed: []const u8, cuts: u64, random: *Random) []u8 {
    const size = @min(seed.len, room.len);
    const cut = if (random.below(cuts) == 0) random.below(size + 1) else size;
    const input = room[room.len - cut ..];
    @memcpy(input, seed[0..cut]);
    for (0..random.below(5)) |_| change(input, random);
    return input;
}

/// Gives the batches and messages of a field right checksums: else few would come further.
pub fn sum(field: []u8) void {
    var at: usize = 0;
    while (field.len - at >= 17) {
        const length = std.mem.readInt(i32, field[at + 8 ..][0..4], .big);
        if (length < 14 or length > field.len - at - 12) return;
        const batch = field[at..][0 .. 12 + @as(usize, @intCast(length))];
        if (batch[16] < 2) {
            std.mem.writeInt(u32, batch[12..16], kernel.crc32(batch[16..]), .big);
        } else if (batch.len >= 61) {
            std.mem.writeInt(u32, batch[17..21], kernel.crc32c(batch[21..]), .big);
        }
        at += batch.len;
    }
}

var unpacked: [1 << 16]u8 = undefined;
/// Decompressed bytes are as hostile as the rest: a slice of the input, or a changed field of records.
fn decompressed(run: *const Run, data: []const u8, random: *Random) []const u8 {
    if (random.below(2) == 0) {
        const from = random.below(data.len + 1);
        return data[from..][0..random.below(data.len - from + 1)];
    }
    const seed = run.seeds[random.below(run.seeds_count)];
    const size = @min(seed.size, unpacked.len);
    const found = unpacked[0..size];
    @memcpy(found, seed.bytes[0..size]);
    for (0..random.below(3)) |_| change(found, random);
    if (random.below(8) > 0) sum(found);
    return found;
}

/// Where a value of MessagePack that begins at `start` ends; past the end of the bytes where it is invalid.
fn oneValue(bytes: []const u8, start: usize) usize {
    if (start >= bytes.len) return bytes.len + 1;
    const head = bytes[start];
    const at = start + 1;
    return switch (head) {
        0x00...0x7F, 0xE0...0xFF, 0xC0, 0xC2, 0xC3 => at,
        0x80...0x8F => values(bytes, at, 2 * @as(usize, head & 15)),
        0x90...0x9F => values(bytes, at, head & 15),
        0xA0...0xBF => at + (head & 31),
        0xC4, 0xD9 => at + 1 + sizeAt(u8, bytes, at),
        0xC6, 0xDB => at + 4 + sizeAt(u32, bytes, at),
        0xC9 => at + 5 + sizeAt(u32, bytes, at),
        0xCB, 0xD3 => at + 8,
        0xD1 => at + 2,
        0xD2 => at + 4,
        0xD8 => at + 17,
        0xDD => values(bytes, at + 4, sizeAt(u32, bytes, at)),
        0xDE => values(bytes, at + 2, 2 * sizeAt(u16, bytes, at)),
        else => bytes.len + 1,
    };
}

/// Where the last of `count` values ends.
fn values(bytes: []const u8, start: usize, count: usize) usize {
    var at = start;
    for (0..count) |_| {
        if (at > bytes.len) return at;
        at = oneValue(bytes, at);
    }
    return at;
}

fn sizeAt(comptime T: type, bytes: []const u8, at: usize) usize {
    const width = @sizeOf(T);
    if (at + width > bytes.len) return bytes.len + 1;
    return std.mem.readInt(T, bytes[at..][0..width], .big);
}

pub export fn kafkasniff_fuzz(run: *Run) void {
    var random = Random{ .state = run.random | 1 };
    const forms = [_]u32{ 0, 1, 2 };
    const call = run.call;
    for (0..run.executions) |_| {
        run.seed = random.below(run.seeds_count);
        const seed = run.seeds[run.seed];
        const input = changed(run.room[0..run.room_size], seed.bytes[0..seed.size], 4, &random);
        const cut = input.len;
        run.size = cut;
        if (seed.program == null and random.below(8) > 0) sum(input);
        const records: u32 = if (random.below(8) == 0) @intCast(random.below(4)) else 0;
        const shown: u32 = @intCast(random.below(2));
        // MessagePack as often as JSON.
        const packs = random.below(2) == 0;
        const payload: u32 = @intCast(random.below(3));
        const json_records: u32 = @intCast(random.below(2));
        call.wants = @bitCast(
            forms[random.below(3)] | records << 2 | shown << 4 | @as(u32, @intFromBool(packs)) << 5 | payload << 6 | json_records << 8,
        );
        call.batches_given = 0;
        const data = input.ptr;
        const ended: calls.Status = if (seed.program) |program| one: {
            if (random.below(16) == 0) {
                var items = [_]calls.Item{
                    .{ .program = program, .start = 0, .end = cut, .output_end = 0, .notes_end = 0, .after = 0, .status = .odd, .records = 0, .truncated = 0, .looked_at = 0, .extensions = 0 },
                    .{ .program = program, .start = cut / 2, .end = cut, .output_end = 0, .notes_end = 0, .after = 0, .status = .odd, .records = 0, .truncated = 0, .looked_at = 0, .extensions = 0 },
                };
                const looked = kernel.kafkasniff_bodies(call, data, cut, &items, items.len);
                if (packs and looked > 0 and oneValue(call.output[0..call.written], 0) != call.written) @panic("not one array");
                break :one items[0].status;
            }
            if (packs and random.below(2) == 0) {
                call.program = program;
                call.start = 0;
                call.end = cut;
                const made = kernel.kafkasniff_pack(call, data);
                break :one @enumFromInt(if (made < 0) -made else 0);
            }
            const done = kernel.kafkasniff_body(call, program, data, 0, cut);
            // Output that was cut must still be a whole value.
            if (done == .done and packs and oneValue(call.output[0..call.written], 0) != call.written) @panic("not a value");
            break :one done;
        } else if (packs) one: {
            const base = calls.Base{ .offset = 0, .timestamp = 0, .append = 0, .appends = random.below(2), .wire = random.next() };
            break :one kernel.kafkasniff_record_list(call, data, 0, cut, &base);
        } else kernel.kafkasniff_records(call, data, 0, cut);
        if (ended == .compressed) {
            for (call.batches[0..call.batches_wanted]) |*batch| {
                const given = decompressed(run, input, &random);
                batch.records = given.ptr;
                batch.size = given.len;
            }
            call.batches_given = call.batches_wanted;
            _ = if (seed.program) |program|
                kernel.kafkasniff_body(call, program, data, 0, cut)
            else
                kernel.kafkasniff_records(call, data, 0, cut);
        }
        run.status = @intFromEnum(ended);
        run.ended[@intCast(run.status)] += 1;
    }
    run.random = random.state;
}

/// The same for programs: those that are damaged are refused, and none is read beyond its end.
pub export fn kafkasniff_fuzz_programs(run: *Run) void {
    var random = Random{ .state = run.random | 1 };
    for (0..run.executions) |_| {
        const seed = run.seeds[random.below(run.seeds_count)];
        const program = seed.program orelse continue;
        const whole = @as(*const [2]u32, @ptrCast(@alignCast(program)))[1];
        const size = @min(whole, run.room_size) / 4 * 4;
        const input = run.room[run.room_size - size .. run.room_size];
        @memcpy(input, program[0..size]);
        for (0..1 + random.below(3)) |_| change(input, &random);
        if (size >= 8 and random.below(2) == 0) std.mem.writeInt(u32, input[4..8], @intCast(size), .little);
        run.ended[@intCast(kernel.kafkasniff_check(input.ptr, size))] += 1;
        // A program that is taken can be walked by.
        if (kernel.kafkasniff_check(input.ptr, size) == 1) {
            run.call.batches_given = 0;
            _ = kernel.kafkasniff_body(run.call, input.ptr, seed.bytes, 0, seed.size);
        }
    }
    run.random = random.state;
}
