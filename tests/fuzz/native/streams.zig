//! Makes packets of some connections, disturbs them, and has the stream engine follow them: in one batch and in several.
//!
//! Both have to yield the same rows and messages. Questions are answered by a hash of what they ask, so answers are wrong
//! as often as right, and the same in both runs. The packets' bytes end where their memory does.

const fuzz = @import("fuzz.zig");
const kernel = @import("kernel");
const std = @import("std");

const streams = kernel.streams;
const types = streams.types;

const Run = extern struct {
    /// Memory for the packets' bytes, at whose end nothing may be read.
    room: [*]u8,
    room_size: u64,
    /// Packets, at least.
    executions: u64,
    random: u64,
    batches: u64,
    packets: u64,
    rows: u64,
    messages: u64,
    questions: u64,
    /// Programs of both directions of some versions.
    programs: [4][2]u64,
};

const TALKS = 3;
const MOST = 200;
const FIRST_TIME = 1_000_000_000_000;
const PAUSES = [_]i64{ 1_000, 40_000, 400_000_000, 61_000_000_000, 3_601_000_000_000, std.math.maxInt(i64) };

/// Says what does not hold, and ends the process.
fn fail(comptime what: []const u8) noreturn {
    std.debug.print("{s}\n", .{what});
    @trap();
}

const Columns = struct {
    order: [MOST]i64,
    capture: [MOST]i32,
    number: [MOST]i64,
    time_ns: [MOST]i64,
    clock: [MOST]i64,
    src_hi: [MOST]u64,
    src_lo: [MOST]u64,
    dst_hi: [MOST]u64,
    dst_lo: [MOST]u64,
    src_port: [MOST]u16,
    dst_port: [MOST]u16,
    seq: [MOST]u32,
    ack: [MOST]u32,
    flags: [MOST]u8,
    offset: [MOST]i64,
    length: [MOST]i32,
    wire_length: [MOST]i32,
    ident: [MOST]u32,
    window: [MOST]u16,

    fn move(c: *Columns, from: usize, to: usize) void {
        inline for (comptime std.meta.fieldNames(Columns)) |name| {
            if (comptime std.mem.eql(u8, name, "order") or std.mem.eql(u8, name, "number")) continue;
            @field(c, name)[to] = @field(c, name)[from];
        }
    }
};

var columns: Columns = undefined;
var owners: [MOST]u32 = undefined;
var positions: [MOST]i64 = undefined;
var hash: u64 = 0;

fn mix(bytes: []const u8) void {
    hash = std.hash.Wyhash.hash(hash, bytes);
}

/// Any answer that the question allows, the same for the same question.
fn answer(q: *types.Ask) callconv(.c) i32 {
    var h = std.hash.Wyhash.init(@backingInt(q.kind));
    if (q.size != 0 and q.kind != .item) h.update(@as([*]const u8, @ptrFromInt(q.data))[0..q.size]);
    // `answers` has the address of a request.
    const a = if (q.kind == .answers) 0 else q.a;
    h.update(std.mem.asBytes(&[_]i64{ a, q.b, q.c, q.direction }));
    const x = h.final();
    switch (q.kind) {
        .facts => {
            if (x & 0x300 == 0) q.out_programs = programs[x >> 10 & 3];
            return @intCast(x & 0xFF);
        },
        .item => {
            // It is not TLS: the item comes back.
            streams.kafkasniff_streams_item(engine, q);
            return @intCast(x & 1);
        },
        .highest_versions => {
            q.data = @intFromPtr(&versions);
            q.size = versions.len;
            return 0;
        },
        .prologue => {
            q.out_count = @intCast(x >> 16 & 31);
            return @intCast(x & 1);
        },
        .judge_request => return @intCast(x % 3),
        else => return @intFromBool(x & 3 != 0),
    }
}

var engine: *streams.Engine = undefined;
const NONE = std.math.maxInt(u32);
/// Half of the API keys are known.
const versions: [40]i32 = @as([20]i32, @splat(2)) ++ @as([20]i32, @splat(-1));
var programs: [4][2]u64 = undefined;

/// Requests and responses with small ids, in segments of any size.
const Side = struct { seq: u32, id: i32, rest: [600]u8, size: usize };

fn frame(side: *Side, is_request: bool, random: *fuzz.Random) void {
    const body = random.below(40);
    const head: usize = if (is_request) 12 else 4;
    if (side.size + 4 + head + body > side.rest.len) return;
    const out = side.rest[side.size..];
    std.mem.writeInt(u32, out[0..4], @intCast(head + body), .big);
    if (random.below(64) == 0) std.mem.writeInt(u32, out[0..4], @truncate(random.next()), .big);
    if (is_request) {
        std.mem.writeInt(u16, out[4..6], @intCast(if (random.below(3) == 0) 0 else random.below(40)), .big);
        std.mem.writeInt(u16, out[6..8], @intCast(random.below(4)), .big);
        std.mem.writeInt(i32, out[8..12], side.id, .big);
        std.mem.writeInt(i16, out[12..14], if (random.below(2) == 0) -1 else 0, .big);
        std.mem.writeInt(u16, out[14..16], 0, .big);
    } else std.mem.writeInt(i32, out[4..8], side.id, .big);
    for (out[4 + head ..][0..body]) |*byte| byte.* = @truncate(random.next() >> 40);
    side.size += 4 + head + body;
    if (random.below(6) != 0) side.id +%= 1;
}

fn make(run: *const Run, random: *fuzz.Random) usize {
    var sides: [TALKS][2]Side = undefined;
    for (&sides) |*talk| for (talk) |*side| {
        side.* = .{ .seq = @truncate(random.next()), .id = @intCast(random.below(4)), .rest = undefined, .size = 0 };
    };
    const count = 1 + random.below(MOST);
    var at: usize = 0;
    var time: i64 = FIRST_TIME;
    var clock: i64 = FIRST_TIME;
    const base = run.room_size - MOST * 64;
    for (0..count) |i| {
        const talk = random.below(TALKS);
        const d = random.below(2);
        const side = &sides[talk][d];
        while (random.below(2) == 0) frame(side, d == 0, random);
        const size = @min(random.below(64), side.size);
        @memcpy(run.room[base + at ..][0..size], side.rest[0..size]);
        std.mem.copyForwards(u8, side.rest[0 .. side.size - size], side.rest[size..side.size]);
        side.size -= size;
        if (random.below(8) == 0) time +|= PAUSES[random.below(if (random.below(20) == 0) PAUSES.len else 3)];
        const shown = if (random.below(50) == 0) types.NO_TIME else time -| @as(i64, @intCast(random.below(100_000)));
        clock = @max(clock, shown);
        var flags: u8 = 16;
        if (random.below(30) == 0) flags = @truncate(random.next() >> 30);
        const ends = [2]u64{ 0xFFFF_0A00_0001 + talk, 0xFFFF_0A00_0009 };
        inline for (comptime std.meta.fieldNames(Columns)) |name| @field(columns, name)[i] = 0;
        columns.time_ns[i] = shown;
        columns.clock[i] = clock;
        columns.src_lo[i] = ends[d];
        columns.dst_lo[i] = ends[1 - d];
        columns.src_port[i] = if (d == 0) 40_000 else 9092;
        columns.dst_port[i] = if (d == 0) 9092 else 40_000;
        columns.seq[i] = side.seq;
        columns.ack[i] = sides[talk][1 - d].seq;
        columns.flags[i] = flags;
        columns.offset[i] = @intCast(base + at);
        columns.length[i] = @intCast(size);
        columns.wire_length[i] = @intCast(size + if (random.below(40) == 0) random.below(50) else 0);
        columns.ident[i] = @truncate(random.next() >> 20);
        columns.window[i] = @intFromBool(random.below(20) != 0);
        side.seq +%= @intCast(columns.wire_length[i]);
        if (flags & 3 != 0) side.seq +%= 1;
        at += size;
        if (random.below(60) == 0) side.seq +%= @truncate(random.next() >> @intCast(random.below(50)));
    }
    var kept = count;
    for (0..count) |i| switch (random.below(40)) {
        0 => columns.move(random.below(count), i),
        1 => kept = @max(1, kept - 1),
        2 => columns.seq[i] -%= @intCast(random.below(80)),
        3 => columns.seq[i] +%= @intCast(random.below(80)),
        4 => columns.ack[i] +%= @truncate(random.next() >> @intCast(random.below(60))),
        else => {},
    };
    // The clock never falls.
    var highest: i64 = types.NO_TIME;
    for (0..kept) |i| {
        columns.order[i] = @intCast(i);
        columns.number[i] = @intCast(i + 1);
        highest = @max(highest, columns.time_ns[i]);
        columns.clock[i] = highest;
    }
    return kept;
}

fn take(run: *const Run, from: usize, to: usize) void {
    var batch: types.Batch = undefined;
    inline for (comptime std.meta.fieldNames(Columns)) |name| @field(batch, name) = @field(columns, name)[from..].ptr;
    batch.rows = to - from;
    batch.buffer = run.room;
    batch.buffer_size = run.room_size;
    batch.end_order = @intCast(to);
    batch.end_clock = types.NO_TIME;
    batch.ticks = to - from;
    batch.tick_order = columns.order[from..].ptr;
    batch.tick_clock = columns.clock[from..].ptr;
    batch.owners = owners[from..].ptr;
    batch.positions = positions[from..].ptr;
    streams.kafkasniff_streams_take(engine, &batch);
}

var arena: [1 << 20]u8 = undefined;

fn tally(run: *Run, counts: bool) void {
    var view: types.View = undefined;
    streams.kafkasniff_streams_view(engine, &view);
    if (view.arena_size > arena.len) fail("more messages than packets");
    const buffer = run.room[0..run.room_size];
    for (engine.messages.items) |*message| {
        const bytes = if (message.flags.arena)
            @as([*]const u8, @ptrFromInt(message.start))[0..message.size]
        else
            buffer[message.start..][0..message.size];
        mix(bytes);
        mix(std.mem.asBytes(&[_]i64{ message.order, message.ordinal, message.time, message.latency, message.retransmits }));
    }
    for (engine.rows.items) |*row| {
        if (row.kind == .opened or row.kind == .closed) continue;
        if (row.at != 0 and row.have != 0) mix(@as([*]const u8, @ptrFromInt(row.at))[0..row.have]);
        // In a request, `b` says that `a` is the address of a client id.
        const inherits = row.kind == .request and row.b != 0;
        if (inherits) mix(@as([*]const u8, @ptrFromInt(@as(u64, @bitCast(row.a))))[0..@intCast(row.b - 1)]);
        const number = if (inherits) 0 else row.a;
        mix(std.mem.asBytes(&[_]i64{ row.order, row.ordinal, row.time, row.packet, @backingInt(row.kind), row.flags, number }));
    }
    for (engine.endings.items) |*ending| mix(std.mem.asBytes(ending));
    for (engine.link_rows.items) |*row| mix(std.mem.asBytes(row));
    for (engine.stalls.items) |*stall| mix(std.mem.asBytes(stall));
    for (engine.networks.items) |*network| mix(std.mem.asBytes(network));
    for (engine.asked.items) |*message| {
        mix(@as([*]const u8, @ptrFromInt(message.start))[0..@intCast(message.latency)]);
        mix(std.mem.asBytes(&[_]i64{ message.order, message.ordinal, message.number, message.pair }));
    }
    streams.kafkasniff_streams_gather(engine, &arena);
    keep(buffer);
    if (!counts) return;
    run.rows += view.rows_count;
    run.messages += view.messages_count;
}

/// Keeps most requests without a response, half of them with their bodies.
fn keep(buffer: []const u8) void {
    for (engine.messages.items, 1..) |*message, number| {
        if (!message.flags.request or message.pair != NONE or message.ordinal & 3 == 3) continue;
        var row = message.*;
        row.number = @intCast(number);
        streams.kafkasniff_streams_keep(engine, @ptrCast(&row), 1, buffer.ptr, &arena, message.ordinal & 1 == 0);
    }
}

/// The same packets in one batch and in several.
pub export fn kafkasniff_fuzz_streams(run: *Run) void {
    var random = fuzz.Random{ .state = run.random | 1 };
    const end = run.packets + run.executions;
    programs = run.programs;
    const port: u16 = 9092;
    while (run.packets < end) {
        run.batches += 1;
        const packets = make(run, &random);
        const forced = random.below(8) == 0;
        const saves = random.below(4) == 0;
        var hashes: [2]u64 = undefined;
        for (&hashes, 0..) |*found, way| {
            var options = streams.Options{
                .secret = .{ random.next(), random.next() },
                .max_frame = 4000,
                .ports = @ptrCast(&port),
                .ports_count = @intFromBool(forced),
                .remembered = 20,
                .follows = .exchanges,
            };
            engine = streams.kafkasniff_streams_new(&answer, &options) orelse fail("no memory");
            hash = 0;
            // Rows of one batch come in the order of packets, whatever the messages are: each packet is a batch here.
            var from: usize = 0;
            while (from < packets) : (from += 1) {
                take(run, from, from + 1);
                tally(run, way == 0);
                if (way == 1 and saves) for (engine.list.items, 0..) |one, place| if (one != null) {
                    var size: u64 = 0;
                    const saved = streams.kafkasniff_streams_save(engine, @intCast(place), &size) orelse fail("no state");
                    if (size == 0 or saved[0] != 'k') fail("another state");
                };
            }
            streams.kafkasniff_streams_finish(engine, std.math.maxInt(u32));
            tally(run, way == 0);
            if (way == 0) run.questions += engine.questions;
            found.* = hash;
            if (streams.kafkasniff_streams_free(engine) != 0) fail("memory is lost");
        }
        if (hashes[0] != hashes[1]) fail("another secret, or a look at the state, changes the results");
        // All at once: nothing may fail.
        var options = streams.Options{
            .secret = .{ 1, 2 },
            .max_frame = 4000,
            .ports = @ptrCast(&port),
            .ports_count = 0,
            .remembered = std.math.maxInt(u64),
            .follows = .links,
        };
        engine = streams.kafkasniff_streams_new(&answer, &options) orelse fail("no memory");
        take(run, 0, packets);
        tally(run, false);
        streams.kafkasniff_streams_finish(engine, std.math.maxInt(u32));
        if (streams.kafkasniff_streams_free(engine) != 0) fail("memory is lost");
        run.packets += packets;
    }
    run.random = random.state;
}
