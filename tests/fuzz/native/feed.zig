//! Makes packets of connections in step, disturbs them, and has the kernel take them: in one batch and in several.
//!
//! Both have to yield the same messages, leave the same rows and keep the same state. The packets' bytes end where their
//! memory does, and all memory that the kernel is given is small at first, so that it has to ask for more at any place.

const fuzz = @import("fuzz.zig");
const kernel = @import("kernel");
const std = @import("std");

const feed = kernel.feed_state;
const found = kernel.feed_found;
const NONE = feed.NONE;

const Run = extern struct {
    /// What is known of each version of an API; codes of those that the kernel takes.
    kinds: [*]const u8,
    codes: [*]const u16,
    codes_count: u64,
    /// Memory for the packets' bytes, at whose end nothing may be read.
    room: [*]u8,
    room_size: u64,
    /// Packets, at least.
    executions: u64,
    random: u64,
    batches: u64,
    packets: u64,
    messages: u64,
    left: u64,
    back: u64,
    /// Frames that came in pieces; connections handed back with a hole, and with early responses; streams with repeated bytes, and without a hole
    /// on a connection that had one.
    pieces: u64,
    holes: u64,
    early: u64,
    repeated: u64,
    filled: u64,
    /// Connections that began here, and those of them whose first request was judged to be one.
    begun: u64,
    judged: u64,
};

const TALKS = 3;
const MOST = 64;
const STREAM = 6 << 10;
const ARENA = 256 << 10;
const TABLE = 16;
const WAITING = 256;
const HELD = 2048;
const MESSAGES = 4096;
const FIRST_TIME = 1_000_000_000_000;
const IDLE = 3_600_000_000_000;

/// Says what does not hold, and ends the process.
fn fail(comptime what: []const u8) noreturn {
    std.debug.print("{s}\n", .{what});
    @trap();
}

const Asked = struct { id: i32, tags: bool };

/// A connection as its ends see it.
const Talk = struct {
    bytes: [2][STREAM]u8,
    made: [2]usize,
    sent: [2]usize,
    base: [2]u32,
    client: u8,
    asked: [MOST]Asked,
    first: usize,
    last: usize,
    id: i32,

    fn begin(self: *Talk, random: *fuzz.Random) void {
        self.made = .{ 0, 0 };
        self.sent = .{ 0, 0 };
        for (&self.base) |*base| {
            base.* = @truncate(random.next());
            if (random.below(3) == 0) base.* = @truncate(0 -% random.below(200));
        }
        self.client = @intCast(random.below(2));
        self.first = 0;
        self.last = 0;
        self.id = @as(i32, @bitCast(@as(u32, @truncate(random.next())))) >> @intCast(random.below(32));
    }

    fn put(self: *Talk, side: usize, bytes: []const u8) void {
        @memcpy(self.bytes[side][self.made[side]..][0..bytes.len], bytes);
        self.made[side] += bytes.len;
    }

    fn number(self: *Talk, side: usize, comptime T: type, value: T) void {
        var bytes: [@sizeOf(T)]u8 = undefined;
        std.mem.writeInt(T, &bytes, value, .big);
        self.put(side, &bytes);
    }

    fn noise(self: *Talk, side: usize, count: usize, random: *fuzz.Random) void {
        for (0..count) |_| self.put(side, &.{@truncate(random.next() >> 40)});
    }

    fn ask(self: *Talk, run: *const Run, random: *fuzz.Random) void {
        const side: usize = self.client;
        const code = run.codes[random.below(run.codes_count)];
        const kind: feed.Kind = @bitCast(run.kinds[code]);
        const named = random.below(4) > 0;
        const name: usize = if (named) random.below(9) else 0;
        const tags: usize = @intFromBool(kind.header == 2);
        const acks: usize = switch (kind.acks) {
            0 => 0,
            1 => 2,
            2 => 4,
            3 => 3,
        };
        const rest = size(random);
        const whole = 10 + name + tags + acks + rest;
        if (self.made[side] + 4 + whole > STREAM or self.last == MOST) return;
        self.number(side, u32, @intCast(whole));
        self.number(side, u16, code / feed.VERSIONS);
        self.number(side, u16, code % feed.VERSIONS);
        self.number(side, i32, self.id);
        self.number(side, i16, if (named) @intCast(name) else -1);
        self.put(side, "a client"[0..name]);
        if (tags > 0) self.put(side, &.{0});
        if (acks == 4) self.number(side, i16, -1);
        if (acks == 3) self.put(side, &.{0});
        if (acks > 0) self.number(side, i16, if (random.below(3) == 0) 0 else -1);
        self.noise(side, rest, random);
        self.asked[self.last] = .{ .id = self.id, .tags = kind.tags };
        self.last += 1;
        if (random.below(16) > 0) self.id +%= 1;
    }

    fn answer(self: *Talk, random: *fuzz.Random) void {
        const side: usize = 1 - self.client;
        if (self.first == self.last) return;
        const asked = self.asked[self.first];
        const tags: usize = @intFromBool(asked.tags);
        const rest = size(random);
        const whole = 4 + tags + rest;
        if (self.made[side] + 4 + whole > STREAM) return;
        self.first += 1;
        self.number(side, u32, @intCast(whole));
        self.number(side, i32, if (random.below(256) == 0) asked.id +% 1 else asked.id);
        if (tags > 0) self.put(side, &.{@intFromBool(random.below(64) == 0)});
        self.noise(side, rest, random);
    }
};

fn size(random: *fuzz.Random) usize {
    return switch (random.below(8)) {
        0 => 0,
        1 => random.below(1200),
        else => random.below(40),
    };
}

/// A packet; its bytes are in the room.
const Row = struct {
    talk: usize,
    side: usize,
    seq: u32,
    ack: u32,
    at: usize,
    length: usize,
    wire: i32,
    flags: u8,
    ident: u32,
    pause: i64,
    timeless: bool,
};

/// Columns of all packets.
const Columns = struct {
    order: [MOST]i64,
    capture: [MOST]i32,
    number: [MOST]i64,
    time: [MOST]i64,
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
    wire: [MOST]i32,
    ident: [MOST]u32,
};

/// Connections begin with their SYNs.
var begins = false;
var talks: [TALKS]Talk = undefined;
var rows: [MOST]Row = undefined;
var columns: Columns = undefined;

/// Fills `rows`; returns how many, and where their bytes begin in the room.
fn make(run: *const Run, random: *fuzz.Random) struct { usize, usize } {
    for (&talks) |*talk| talk.begin(random);
    var count: usize = 0;
    var at: usize = run.room_size;
    begins = random.below(2) == 0;
    if (begins) for (&talks, 0..) |*talk, index| for (0..2) |place| {
        const side = if (place == 0) talk.client else 1 - talk.client;
        rows[count] = .{
            .talk = index,
            .side = side,
            .seq = talk.base[side] -% 1,
            .ack = if (place == 0) 0 else talk.base[1 - side],
            .at = at,
            .length = 0,
            .wire = 0,
            .flags = if (place == 0) 0x02 else 0x12,
            .ident = @intCast(count),
            .pause = 10,
            .timeless = false,
        };
        count += 1;
    };
    const wanted = 1 + count + random.below(MOST - 14);
    var tries: usize = 0;
    while (count < wanted and tries < 200) : (tries += 1) {
        const index = random.below(TALKS);
        const talk = &talks[index];
        const side: usize = random.below(2);
        for (0..random.below(4)) |_| if (side == talk.client) talk.ask(run, random) else talk.answer(random);
        const waiting = talk.made[side] - talk.sent[side];
        const length = if (random.below(3) == 0) random.below(waiting + 1) else waiting;
        if (length == 0 and random.below(8) > 0) continue;
        at -= length;
        @memcpy(run.room[at..][0..length], talk.bytes[side][talk.sent[side]..][0..length]);
        rows[count] = .{
            .talk = index,
            .side = side,
            .seq = talk.base[side] +% @as(u32, @intCast(talk.sent[side])),
            .ack = talk.base[1 - side] +% @as(u32, @intCast(talk.sent[1 - side])),
            .at = at,
            .length = length,
            .wire = @intCast(length),
            .flags = 0x10 | (if (random.below(4) == 0) @as(u8, 0x08) else 0),
            .ident = @intCast(count),
            .pause = @intCast(random.below(3) * 1000),
            .timeless = false,
        };
        talk.sent[side] += length;
        count += 1;
    }
    return .{ count, at };
}

fn disturb(run: *const Run, before: usize, random: *fuzz.Random) usize {
    var count = before;
    if (count == 0) return 0;
    const times = random.below(4);
    for (0..times) |_| {
        const at = random.below(count);
        const row = &rows[at];
        switch (random.below(12)) {
            // Out of order.
            0, 1, 2, 3 => {
                const to = @min(at + 1 + random.below(6), count - 1);
                const moved = row.*;
                for (at..to) |place| rows[place] = rows[place + 1];
                rows[to] = moved;
            },
            // Twice, now and then with other bounds.
            4, 5 => if (count < MOST) {
                const to = @min(at + 1 + random.below(6), count);
                var again = row.*;
                if (random.below(2) == 0) again.ident +%= 1000;
                if (random.below(4) == 0 and again.length > 1) {
                    const cut = random.below(again.length);
                    again.seq +%= @intCast(cut);
                    again.at += cut;
                    again.length -= cut;
                    again.wire = @intCast(again.length);
                }
                var place = count;
                while (place > to) : (place -= 1) rows[place] = rows[place - 1];
                rows[to] = again;
                count += 1;
            },
            // Lost.
            6 => {
                for (at..count - 1) |place| rows[place] = rows[place + 1];
                count -= 1;
                if (count == 0) return 0;
            },
            7 => row.seq +%= @truncate(random.below(5) -% 2),
            8 => fuzz.change(run.room[row.at..][0..row.length], random),
            9 => switch (random.below(5)) {
                0 => row.flags = @truncate(random.next()),
                1 => row.wire += @intCast(random.below(3)),
                2 => row.timeless = true,
                3 => row.pause = @intCast(random.below(2) * IDLE),
                else => row.pause = 1_000_000_000,
            },
            10 => row.seq = @truncate(random.next()),
            else => row.ack = @truncate(random.next() >> @intCast(random.below(64))),
        }
    }
    return count;
}

fn fill(count: usize, base: usize, random: *fuzz.Random) void {
    var time: i64 = FIRST_TIME;
    for (rows[0..count], 0..) |row, index| {
        time += row.pause;
        columns.order[index] = @intCast(index + 100);
        columns.capture[index] = @intCast(index / 40);
        columns.number[index] = @intCast(index + 1);
        columns.time[index] = if (row.timeless) feed.NO_TIME else time - @as(i64, @intCast(random.below(64) / 63 * 1500));
        columns.clock[index] = time;
        const ends = [2]u64{ row.talk, 77 };
        // A connection that nobody knows, now and then.
        const port: u16 = if (random.below(200) == 0) 1 else 9092;
        const ports = [2]u16{ @intCast(1000 + row.talk), port };
        columns.src_hi[index] = 0;
        columns.dst_hi[index] = 0;
        columns.src_lo[index] = ends[row.side];
        columns.dst_lo[index] = ends[1 - row.side];
        columns.src_port[index] = ports[row.side];
        columns.dst_port[index] = ports[1 - row.side];
        columns.seq[index] = row.seq;
        columns.ack[index] = row.ack;
        columns.flags[index] = row.flags;
        columns.offset[index] = @intCast(row.at - base);
        columns.length[index] = @intCast(row.length);
        columns.wire[index] = row.wire;
        columns.ident[index] = row.ident;
    }
}

/// What is kept of connections, and the kernel's memory.
const World = struct {
    connections: [TALKS]feed.Connection,
    table: [TABLE]u32,
    waiting: [WAITING]feed.Waiting,
    held: [HELD]feed.Held,
    active: [TALKS]u32,
    kinds: [feed.KEYS * feed.VERSIONS]u8,
    arenas: [2][ARENA]u8,
    messages: [MESSAGES]found.Message,
    left: [MOST]u32,
    back: [TALKS]u32,
    begins: [MOST]u32,
    places: [MOST]u32,
    places_rows: [MOST]u32,
    marks: [feed.MARKS]u8,
    /// Whether Python knows a connection of each talk, as it does of those that began and of those whose rows were left.
    known: [TALKS]bool,
    begun: u32,
    judged: u64,
    call: feed.Feed,
    arena: usize,
    /// Hashes of messages, of rows left to Python, of kept state; of the unfinished frames of each connection.
    hashes: [3 + TALKS]u64,
    found: u64,
    left_found: u64,
    back_found: u64,
    pieces: u64,
    holes: u64,
    early: u64,

    fn begin(self: *World, base: []u8, random: *fuzz.Random) void {
        self.table = @splat(NONE);
        self.kinds = @splat(0x80);
        self.arena = 0;
        self.hashes = @splat(0);
        self.found = 0;
        self.left_found = 0;
        self.back_found = 0;
        self.pieces = 0;
        self.holes = 0;
        self.early = 0;
        self.known = @splat(!begins);
        self.begun = 0;
        self.judged = 0;
        self.call = std.mem.zeroes(feed.Feed);
        const call = &self.call;
        call.buffer = base.ptr;
        call.buffer_size = base.len;
        call.connections = &self.connections;
        call.connections_size = TALKS;
        call.table = &self.table;
        call.table_size = TABLE;
        call.waiting = &self.waiting;
        call.held = &self.held;
        call.active = &self.active;
        call.free = NONE;
        call.free_held = NONE;
        call.every_end = @intCast(random.below(2));
        call.max_frame = if (random.below(4) == 0) 600 else 100 << 20;
        call.idle = IDLE;
        call.kinds = &self.kinds;
        call.arena = &self.arenas[0];
        call.messages = &self.messages;
        call.left = &self.left;
        call.back = &self.back;
        call.begins = &self.begins;
        call.places = &self.places;
        call.places_rows = &self.places_rows;
        call.marks = &self.marks;
        for (&self.connections, &talks, 0..) |*connection, *talk, index| {
            connection.* = std.mem.zeroes(feed.Connection);
            connection.here = @intFromBool(!begins);
            connection.client = talk.client;
            connection.low = .{ index, 77 };
            connection.port = .{ @intCast(1000 + index), 9092 };
            connection.clock = FIRST_TIME;
            connection.dialogue.first = NONE;
            connection.dialogue.last = NONE;
            connection.dialogue.most = 1;
            connection.dialogue.early = NONE;
            connection.dialogue.early_last = NONE;
            connection.dialogue.silent = NONE;
            connection.dialogue.silent_last = NONE;
            connection.dialogue.silent_ended = NONE;
            connection.loss = @enumFromInt(random.below(3));
            for (&connection.streams, talk.base) |*stream, first| {
                stream.next = first;
                stream.piece.need = 4;
                stream.held = NONE;
                stream.held_last = NONE;
                stream.acked = feed.NO_TIME;
                stream.before = random.below(100);
            }
            if (!begins) kernel.kafkasniff_feed_enter(call, @intCast(index));
        }
    }

    /// Rows with which connections may begin, and their places.
    fn mayBegin(self: *World, from: usize, to: usize) void {
        const call = &self.call;
        @memset(&self.marks, 0);
        @memset(&self.places, NONE);
        for (self.places[0 .. TALKS - self.begun], self.begun..) |*place, index| place.* = @intCast(index);
        call.begins_size = 0;
        call.begins_used = 0;
        call.places_used = 0;
        call.judged_row = std.math.maxInt(u64);
        for (from..to) |row| {
            if (columns.flags[row] & 0x17 != 0x02 or columns.wire[row] != 0 or columns.time[row] == feed.NO_TIME) continue;
            if (self.known[talkOf(row) orelse continue]) continue;
            self.begins[call.begins_size] = @intCast(row - from);
            call.begins_size += 1;
        }
    }

    fn talkOf(row: usize) ?usize {
        if (columns.src_port[row] == 9092) return columns.dst_lo[row];
        if (columns.dst_port[row] == 9092) return columns.src_lo[row];
        return null;
    }

    /// What connections began with, and what is Python's by now.
    fn haveBegun(self: *World, from: usize) void {
        const call = &self.call;
        for (self.places_rows[0..call.places_used]) |row| self.known[talkOf(from + row).?] = true;
        for (call.left[0..call.left_used]) |row| self.known[talkOf(from + row) orelse continue] = true;
        self.begun += @intCast(call.places_used);
    }

    /// More of what the kernel asked for.
    fn grow(self: *World, run: *const Run, status: feed.Status) void {
        const call = &self.call;
        switch (status) {
            .done => unreachable,
            .no_messages => call.messages_size = @min(2 * call.messages_size + 1, MESSAGES),
            .no_arena => {
                if (call.arena_size == ARENA) fail("an arena without end");
                call.arena_size = @min(2 * call.arena_size + 64, ARENA);
            },
            .no_waiting => {
                const first: u32 = @intCast(call.waiting_size);
                const more: u32 = @min(first + 3, WAITING - first);
                if (more == 0) fail("entries without end");
                for (first..first + more) |index| self.waiting[index].next = @intCast(index + 1);
                self.waiting[first + more - 1].next = call.free;
                call.free = first;
                call.waiting_size = first + more;
            },
            .no_held => {
                const first: u32 = @intCast(call.held_size);
                const more: u32 = @min(first + 1, HELD - first);
                if (more == 0) fail("segments without end");
                for (first..first + more) |index| self.held[index].next = @intCast(index + 1);
                self.held[first + more - 1].next = call.free_held;
                call.free_held = first;
                call.held_size = first + more;
            },
            .unknown => self.kinds[call.asked] = run.kinds[call.asked],
            .judge => {
                const bytes = call.buffer[call.asked_at..][0..call.asked_size];
                if (call.asked_at + call.asked_size > call.buffer_size) fail("asked for more than there is");
                if (self.connections[call.asked_connection].here == 0) fail("asked for nothing");
                call.judged_row = call.row;
                call.judged = @intFromBool(std.hash.Wyhash.hash(0, bytes) & 7 != 0);
                self.judged += call.judged;
            },
        }
    }

    fn batch(self: *World, run: *const Run, from: usize, to: usize) void {
        const call = &self.call;
        inline for (.{ "order", "capture", "number", "time", "clock", "src_hi", "src_lo", "dst_hi", "dst_lo" }) |name|
            @field(call, name) = @field(columns, name)[from..].ptr;
        inline for (.{ "src_port", "dst_port", "seq", "ack", "flags", "offset", "length", "wire", "ident" }) |name|
            @field(call, name) = @field(columns, name)[from..].ptr;
        call.rows = to - from;
        call.row = 0;
        const before = &self.arenas[self.arena];
        const used = call.arena_used;
        self.arena = 1 - self.arena;
        call.arena = &self.arenas[self.arena];
        call.arena_size = used;
        call.arena_used = 0;
        if (kernel.kafkasniff_feed_carry(call, before) != .done) fail("more is carried than was there");
        call.messages_size = 1;
        call.messages_used = 0;
        call.left_used = 0;
        call.back_used = 0;
        call.bytes = 0;
        call.framed = 0;
        call.repeated = 0;
        self.mayBegin(from, to);
        while (true) {
            const status = kernel.kafkasniff_feed(call);
            if (status == .done) break;
            self.grow(run, status);
        }
        self.haveBegun(from);
        for (call.messages[0..call.messages_used], 0..) |*message, index| self.take(message, index);
        for (call.left[0..call.left_used]) |row| self.mix(.left, from + row);
        self.left_found += call.left_used;
        self.back_found += call.back_used;
        for (call.back[0..call.back_used]) |index| {
            if (self.connections[index].here != 0) fail("back and here");
            self.holes += @intFromBool(self.connections[index].streams[0].held != NONE);
            self.early += @intFromBool(self.connections[index].dialogue.early != NONE);
            self.keepPieces(index);
        }
    }

    fn mix(self: *World, which: Hash, value: u64) void {
        self.mixAt(@intFromEnum(which), value);
    }

    fn mixAt(self: *World, which: usize, value: u64) void {
        const hash = &self.hashes[which];
        hash.* = (hash.* ^ value) *% 0x9E37_79B9_7F4A_7C15;
        hash.* ^= hash.* >> 29;
    }

    fn mixBytes(self: *World, which: Hash, bytes: []const u8) void {
        self.mix(which, bytes.len);
        self.mix(which, std.hash.Wyhash.hash(0, bytes));
    }

    fn take(self: *World, message: *const found.Message, index: usize) void {
        const call = &self.call;
        self.found += 1;
        self.pieces += @intFromBool(message.flags.arena);
        const bytes = if (message.flags.arena) call.arena[0..call.arena_used] else call.buffer[0..call.buffer_size];
        self.mixBytes(.messages, bytes[message.start..][0..message.size]);
        inline for (.{ "order", "first_packet", "last_packet", "packet", "first_time", "time", "latency", "duration" }) |name|
            self.mix(.messages, @bitCast(@field(message, name)));
        inline for (.{ "ordinal", "connection", "size", "correlation", "body", "code", "client_id", "step", "retransmits" }) |name|
            self.mix(.messages, @bitCast(@as(i64, @field(message, name))));
        self.mix(.messages, @as(u8, @bitCast(message.flags)) & ~@as(u8, 2));
        if (message.pair != NONE) {
            const other = &call.messages[0..call.messages_used][message.pair];
            if (other.pair != index or other.ordinal != message.ordinal or other.connection != message.connection)
                fail("not a pair");
            if (other.flags.request == message.flags.request) fail("two of a kind");
        }
    }

    /// Mix frames that are not whole: those of a connection that falls are there up to the end of its batch.
    fn keepPieces(self: *World, index: usize) void {
        const call = &self.call;
        const dialogue = &self.connections[index].dialogue;
        var early = dialogue.early;
        var early_count: u32 = 0;
        var early_bytes: u32 = 0;
        var early_last = NONE;
        while (early != NONE) : (early = self.held[early].next) {
            const one = &self.held[early];
            if (one.at + one.size > call.arena_used) fail("a response outside of the arena");
            self.mixAt(3 + index, std.hash.Wyhash.hash(one.due, call.arena[one.at..][0..one.size]));
            inline for (.{ "packet", "time", "order", "first_packet", "last_packet", "first_time", "seq" }) |name|
                self.mixAt(3 + index, @bitCast(@as(i64, @field(one, name))));
            early_count += 1;
            early_bytes += one.size;
            early_last = early;
        }
        if (early_count != dialogue.early_count or early_bytes != dialogue.early_bytes or early_last != dialogue.early_last)
            fail("another account of early responses");
        if (early_count > 0) self.mixAt(3 + index, dialogue.ticks);
        for (&self.connections[index].streams) |*stream| {
            const piece = &stream.piece;
            var entry = stream.held;
            var count: u32 = 0;
            var bytes: u32 = 0;
            var last = NONE;
            var end: u32 = 0;
            while (entry != NONE) : (entry = self.held[entry].next) {
                const one = &self.held[entry];
                if (one.at + one.size > call.arena_used) fail("held outside of the arena");
                if (one.seq -% stream.next <= end) fail("held where it is delivered, or overlapping");
                end = one.seq -% stream.next + one.size - 1;
                self.mixAt(3 + index, std.hash.Wyhash.hash(one.seq, call.arena[one.at..][0..one.size]));
                inline for (.{ "packet", "time", "count", "clock" }) |name| self.mixAt(3 + index, @bitCast(@field(one, name)));
                count += 1;
                bytes += one.size;
                last = entry;
            }
            if (count != stream.held_count or bytes != stream.held_bytes or last != stream.held_last)
                fail("another account of what is held");
            if (piece.have == 0) continue;
            if (piece.have > piece.room or piece.at + piece.room > call.arena_used) fail("outside of the arena");
            self.mixAt(3 + index, std.hash.Wyhash.hash(piece.have, call.arena[piece.at..][0..piece.have]));
            inline for (.{ "first_packet", "last_packet", "first_time", "last_time" }) |name|
                self.mixAt(3 + index, @bitCast(@field(piece, name)));
        }
    }

    /// Mix what is kept, but for where it is.
    fn keep(self: *World) void {
        for (&self.connections, 0..) |*connection, index| {
            if (connection.here != 0) self.keepPieces(index);
            const dialogue = &connection.dialogue;
            self.mix(.kept, @intFromEnum(connection.begun));
            inline for (.{ "here", "clock", "last_packet", "last_time", "packets", "count", "retransmits" }) |name|
                self.mix(.kept, @bitCast(@as(i64, @intCast(@field(connection, name)))));
            inline for (.{ "ordinal", "last_id", "last_answer", "has_last_id", "has_last_answer", "ids_vary", "ids_rise" }) |name|
                self.mix(.kept, @bitCast(@as(i64, @field(dialogue, name))));
            inline for (.{ "most", "count", "retransmits", "order", "time", "packet" }) |name|
                self.mix(.kept, @bitCast(@as(i64, @field(dialogue, name))));
            var entry = dialogue.first;
            var count: u32 = 0;
            while (entry != NONE) : (entry = self.waiting[entry].next) {
                const waiting = &self.waiting[entry];
                inline for (.{ "ordinal", "first_time", "time", "correlation", "code" }) |name|
                    self.mix(.kept, @bitCast(@as(i64, @field(waiting, name))));
                count += 1;
                if (waiting.next == NONE and entry != dialogue.last) fail("another last one");
            }
            if (count != dialogue.count) fail("another count");
            if (dialogue.silent_ended != dialogue.silent) fail("what ended is still linked");
            entry = dialogue.silent;
            count = 0;
            while (entry != NONE) : (entry = self.waiting[entry].next) {
                const waiting = &self.waiting[entry];
                inline for (.{ "ordinal", "first_time", "time", "correlation", "code" }) |name|
                    self.mix(.kept, @bitCast(@as(i64, @field(waiting, name))));
                count += 1;
                if (waiting.next == NONE and entry != dialogue.silent_last) fail("another last silent one");
            }
            if (count != dialogue.silent_count or count > 64) fail("another count of silent ones");
            for (&connection.streams) |*stream| {
                const piece = &stream.piece;
                inline for (.{ "next", "ack", "bytes", "framed", "packets", "repeated", "held_count" }) |name| self.mix(.kept, @field(stream, name));
                inline for (.{ "opened", "acked" }) |name| self.mix(.kept, @bitCast(@field(stream, name)));
                inline for (.{ "have", "need", "sized" }) |name| self.mix(.kept, @field(piece, name));
                const known = @min(stream.packets, feed.RECENT);
                for (stream.recent[0..known]) |recent| {
                    self.mix(.kept, @as(u64, recent.seq) << 32 | recent.wire);
                    self.mix(.kept, recent.ident);
                }
            }
        }
        // Each entry is either free or waits.
        var free: u64 = 0;
        var entry = self.call.free;
        while (entry != NONE) : (entry = self.waiting[entry].next) free += 1;
        for (&self.connections) |*connection| free += connection.dialogue.count + connection.dialogue.silent_count;
        if (free != self.call.waiting_size) fail("entries are lost");
        free = 0;
        entry = self.call.free_held;
        while (entry != NONE) : (entry = self.held[entry].next) free += 1;
        for (&self.connections) |*connection| {
            free += connection.dialogue.early_count;
            for (&connection.streams) |*stream| free += stream.held_count;
        }
        if (free != self.call.held_size) fail("segments are lost");
        for (0..TALKS) |index| kernel.kafkasniff_feed_forget(&self.call, @intCast(index));
        for (self.table) |index| if (index != NONE) fail("still known");
    }
};

const Hash = enum { messages, left, kept };

var worlds: [2]World = undefined;

/// The same packets in one batch and in several.
pub export fn kafkasniff_fuzz_feed(run: *Run) void {
    var random = fuzz.Random{ .state = run.random | 1 };
    const end = run.packets + run.executions;
    while (run.packets < end) {
        run.batches += 1;
        const made, const base = make(run, &random);
        const count = if (random.below(4) == 0) made else disturb(run, made, &random);
        fill(count, base, &random);
        const start = random.state;
        for (&worlds, 0..) |*world, way| {
            var same = fuzz.Random{ .state = start };
            world.begin(run.room[base..run.room_size], &same);
            var from: usize = 0;
            while (way > 0 and from < count) {
                const to = from + random.below(count - from + 1);
                world.batch(run, from, to);
                from = @max(to, from);
                if (random.below(4) == 0) break;
            }
            world.batch(run, from, count);
            world.keep();
        }
        _ = random.next();
        const one = &worlds[0];
        const other = &worlds[1];
        for (one.hashes, other.hashes, 0..) |hash, also, which| if (hash != also) switch (which) {
            0 => fail("batches have a say in messages"),
            1 => fail("batches have a say in what is left"),
            else => fail("batches have a say in what is kept"),
        };
        run.packets += count + 1;
        run.messages += one.found;
        run.left += one.left_found;
        run.back += one.back_found;
        run.pieces += one.pieces;
        run.holes += one.holes;
        run.early += one.early;
        run.begun += one.begun;
        run.judged += one.judged;
        for (&one.connections) |*connection| for (&connection.streams) |*stream| {
            run.repeated += @intFromBool(stream.repeated > 0);
            // A stream that waits for no hole now has waited for one.
            run.filled += @intFromBool(connection.count > 0 and stream.held == NONE);
        };
    }
    run.random = random.state;
}
