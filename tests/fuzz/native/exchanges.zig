//! Mutates both messages of exchanges, what is said of them, and the names of topic ids, and has the kernel write them
//! as columns; then the records of their batches.
//!
//! Requests end where one memory does, responses where another does, and a byte written after a column ends the process.

const columns = @import("columns.zig");
const fuzz = @import("fuzz.zig");
const kernel = @import("kernel");
const lines = @import("lines.zig");
const std = @import("std");

const exchanges = kernel.exchanges;
const Memory = columns.Memory;
const Message = kernel.feed_found.Message;
const NONE = exchanges.NONE;

/// One of the messages of an exchange to begin with.
const Side = extern struct {
    bytes: [*]const u8,
    size: u64,
    /// Record batches in its body: where they begin, and their sizes; 0: there is none.
    batches: [2]u64,
    sizes: [2]u64,
    message: Message,
};

const Seed = extern struct {
    request: Side,
    response: Side,
};

/// Memory for messages, at whose end nothing may be read.
const Room = extern struct {
    bytes: [*]u8,
    size: u64,
};

const Run = extern struct {
    /// Its programs and its `call`; the rest is set here.
    call: *exchanges.Exchanges,
    records: *kernel.columns.Columns,
    seeds: [*]const Seed,
    seeds_count: u64,
    requests: Room,
    responses: Room,
    executions: u64,
    random: u64,
    /// The last exchange: its seed, and the sizes of its messages at the ends of both rooms.
    seed: u64,
    asked: u64,
    answered: u64,
    /// Exchanges that are columns, and those that are left to Python; calls that ended early.
    rows: u64,
    left: u64,
    ended: u64,
    /// Batches in columns, batches whose records were taken, and their records.
    batches: u64,
    taken: u64,
    written: u64,
    /// Names of topics.
    named: u64,
};

const MOST = 3;
const TEXT = 48 << 10;
/// Bytes of a batch before its records.
const HEADER = 61;

var memory: [2 << 20]u8 align(8) = undefined;
var output: [8 << 20]u8 align(8) = undefined;
var unpacked: [1 << 16]u8 = undefined;

/// Puts a message before those that are in a room already; returns the size of the changed bytes.
fn place(room: *const Room, end: *u64, side: *const Side, message: *Message, random: *fuzz.Random) void {
    const size = if (random.below(8) == 0) random.below(side.size + 1) else side.size;
    end.* -= size;
    const input = room.bytes[end.*..][0..size];
    @memcpy(input, side.bytes[0..size]);
    for (0..random.below(4)) |_| fuzz.change(input, random);
    if (random.below(8) > 0) {
        for (side.batches, side.sizes) |at, batch| if (at + batch <= size) fuzz.sum(input[at..][0..batch]);
    }
    message.* = side.message;
    message.start = end.*;
    message.size = @intCast(size);
}

fn some(random: *fuzz.Random, is_small: bool, most: u64) u64 {
    return if (is_small) random.below(@min(most, 9)) else most;
}

/// Bodies that are wanted as text: the same of all kinds.
const wanted = [_][2 * kernel.feed_found.KEYS * kernel.feed_found.VERSIONS]exchanges.Wanted{ @splat(.never), @splat(.always), @splat(.with_errors) };

fn texts(room: *Memory, count: u64, size: u64) exchanges.Texts {
    return .{ .offsets = room.take(i32, count + 1), .data = room.take(u8, size), .size = size, .used = 0 };
}

/// Gives a call its memory, now and then very little of it.
fn prepare(call: *exchanges.Exchanges, room: *Memory, random: *fuzz.Random) void {
    const is_small = random.below(8) == 0;
    const text = if (is_small) random.below(600) else TEXT;
    call.rows_size = if (is_small) 1 + random.below(MOST) else MOST;
    call.rows = room.take(exchanges.Row, call.rows_size);
    call.unnamed = @intCast(random.below(2));
    call.requests = texts(room, call.rows_size, text);
    call.responses = texts(room, call.rows_size, text);
    call.names.table_size = @as(u64, 1) << @intCast(if (is_small) random.below(6) else 9);
    call.names.table = room.take(u32, call.names.table_size);
    call.names.texts = texts(room, call.names.table_size / 2, if (is_small) random.below(80) else 8 << 10);
    inline for (.{ .{ "topics", u32, 2048 }, .{ "partitions", exchanges.Partition, 4096 }, .{ "codes", i32, 2048 } }) |one| {
        const size = some(random, is_small, one[2]);
        @field(call, one[0] ++ "_size") = size;
        @field(call, one[0]) = room.take(one[1], size);
    }
    call.batches_size = some(random, is_small, 256);
    call.batches = room.take(kernel.columns.Batch, call.batches_size);
    call.shared = room.take(exchanges.Shared, call.batches_size);
}

fn isName(call: *const exchanges.Exchanges, name: u32) bool {
    return name == NONE or name < call.names.count;
}

/// The topic of a partition or a batch; without a name, an id.
fn isTopic(call: *const exchanges.Exchanges, name: u32, id: u32) bool {
    if (!isName(call, name) or !isName(call, id)) return false;
    return name != NONE or (call.unnamed != 0 and id != NONE);
}

fn isText(text: *const exchanges.Texts, count: u64) bool {
    if (text.used > text.size or text.offsets[0] != 0 or text.offsets[count] != text.used) return false;
    for (0..count) |index| if (text.offsets[index] > text.offsets[index + 1]) return false;
    return true;
}

/// Whether the rows of a call fit together.
fn check(call: *const exchanges.Exchanges, rooms: [2]Room) void {
    const count = call.rows_used;
    if (!isText(&call.requests, count) or !isText(&call.responses, count)) @panic("not texts");
    if (!isText(&call.names.texts, call.names.count)) @panic("not names");
    var all: [4]u64 = @splat(0);
    for (call.rows[0..count]) |*row| {
        const pair = call.pairs[row.pair];
        inline for (.{ row.topics, row.partitions, row.batches, row.codes }, 0..) |number, index| all[index] += number;
        if (row.asked_topics > row.topics or row.asked_partitions > row.partitions) @panic("more than all");
        inline for (.{ "client_id", "group", "transaction", "asked_member", "given_member" }) |name| {
            if (!isName(call, @field(row, name))) @panic("not a name");
        }
        // Now and then the request of a pair is a response.
        const asked = call.found.rows[pair.request].size;
        const size = if (pair.response == NONE) asked else @max(asked, call.found.rows[pair.response].size);
        if (@as(u64, row.facts) + row.facts_size > size) @panic("facts of nothing");
    }
    if (all[0] != call.topics_used or all[1] != call.partitions_used or all[2] != call.batches_used or all[3] != call.codes_used)
        @panic("not rows");
    for (call.topics[0..call.topics_used]) |name| {
        const index = if (call.unnamed != 0) name & ~exchanges.UNNAMED else name;
        if (index >= call.names.count) @panic("not a topic");
    }
    for (call.partitions[0..call.partitions_used]) |*one| {
        if (!isTopic(call, one.topic, one.topic_id)) @panic("not a partition");
        if (one.codec < 0 or one.codec > 5) @panic("not a codec");
    }
    for (call.batches[0..call.batches_used], call.shared[0..call.batches_used]) |*batch, *shared| {
        if (shared.row >= count or shared.place >= call.partitions_used) @panic("a batch of nothing");
        if (shared.codec > 4 or !isTopic(call, shared.topic, shared.topic_id)) @panic("not a batch");
        const begin = @intFromPtr(batch.records.?);
        for (rooms) |room| {
            const first = @intFromPtr(room.bytes);
            if (begin >= first and begin + batch.size <= first + room.size) break;
        } else @panic("records of no message");
    }
    for (call.codes[0..call.codes_used]) |code| if (code == 0) @panic("not an error");
}

/// The records of the batches; those of compressed ones are as hostile as the rest.
fn records(run: *Run, random: *fuzz.Random) void {
    const call = run.call;
    const found = call.batches[0..call.batches_used];
    var used: usize = 0;
    for (found, call.shared[0..call.batches_used]) |*batch, *shared| {
        run.batches += 1;
        if (shared.codec == 0) continue;
        const seed = &run.seeds[random.below(run.seeds_count)];
        const side = if (random.below(2) == 0) &seed.request else &seed.response;
        // Mostly the records of another batch.
        const from = if (side.sizes[0] > HEADER and random.below(4) > 0) side.batches[0] + HEADER else random.below(side.size + 1);
        const end = if (from > side.batches[0]) @max(from, side.batches[0] + side.sizes[0]) else side.size;
        const size = @min(end - from, unpacked.len - used);
        const given = unpacked[used..][0..size];
        @memcpy(given, side.bytes[from..][0..size]);
        for (0..random.below(3)) |_| fuzz.change(given, random);
        used += size;
        batch.records = given.ptr;
        batch.size = size;
    }
    const into = run.records;
    into.batches = found.ptr;
    into.batches_size = found.len;
    into.first_time = columns.number(random);
    into.last_time = columns.number(random);
    kernel.kafkasniff_columns_measure(into);
    for (found) |*batch| {
        if (batch.status != .done) continue;
        if (batch.counts.rows > batch.most_records or batch.counts.headers > batch.most_headers) @panic("too many records");
        run.taken += 1;
    }
    var room = Memory{ .bytes = &output };
    columns.prepare(into, &room, random);
    if (kernel.kafkasniff_columns_write(into) == .done) run.written += into.rows;
    room.check();
}

pub export fn kafkasniff_fuzz_exchanges(run: *Run) void {
    var random = fuzz.Random{ .state = run.random | 1 };
    const call = run.call;
    lines.known.clear();
    for (0..run.executions) |_| {
        var messages: [2 * MOST]Message = undefined;
        var pairs: [MOST]exchanges.Pair = undefined;
        const count = 1 + random.below(MOST);
        var ends = [2]u64{ run.requests.size, run.responses.size };
        for (0..count) |index| {
            const number = random.below(run.seeds_count);
            const seed = &run.seeds[number];
            if (seed.request.size > ends[0] or seed.response.size > ends[1]) {
                pairs[index] = pairs[index - 1];
                continue;
            }
            place(&run.requests, &ends[0], &seed.request, &messages[2 * index], &random);
            place(&run.responses, &ends[1], &seed.response, &messages[2 * index + 1], &random);
            pairs[index] = .{ .request = @intCast(2 * index), .response = @intCast(2 * index + 1) };
            if (index == 0) {
                run.seed = number;
                run.asked = run.requests.size - ends[0];
                run.answered = run.responses.size - ends[1];
            }
            if (random.below(32) == 0) lines.disturb(&messages[2 * index + random.below(2)], &random);
            if (random.below(32) == 0) pairs[index].request = @truncate(random.below(2 * MOST));
            if (random.below(32) == 0) pairs[index].response = if (random.below(2) == 0) NONE else @truncate(random.below(2 * MOST));
        }
        call.found = .{
            .rows = &messages,
            .size = 2 * count,
            .buffer = run.requests.bytes,
            .buffer_size = run.requests.size,
            .arena = run.responses.bytes,
            .arena_size = run.responses.size,
        };
        call.pairs = &pairs;
        call.pairs_size = count;
        call.headers = @intFromBool(random.below(32) == 0);
        call.bodies = if (random.below(4) == 0) null else &wanted[random.below(wanted.len)];
        call.records = @intFromBool(random.below(4) > 0);
        call.topic_names = if (random.below(8) == 0) null else lines.known.begin(2 * count, &random);
        call.next = 0;
        call.continues = 0;
        while (call.next < count) {
            var room = Memory{ .bytes = &memory };
            prepare(call, &room, &random);
            const first = call.next;
            call.continues = 0;
            var given_up: u64 = 0;
            var outcome = kernel.kafkasniff_exchanges(call);
            while (outcome == .asks) : (outcome = kernel.kafkasniff_exchanges(call)) {
                const names = call.topic_names orelse @panic("asked without names");
                run.named += names.wanted;
                run.ended += 1;
                room.check();
                if (!lines.known.answer(names.index, &random)) {
                    call.next += 1;
                    given_up += 1;
                }
                call.continues = 1;
            }
            if (outcome != .done and outcome != .no_room) @panic("misuse");
            if (call.rows_used + given_up > call.next - first) @panic("rows of no exchange");
            room.check();
            check(call, .{ run.requests, run.responses });
            if (call.records != 0) records(run, &random);
            run.rows += call.rows_used;
            run.left += call.next - first - call.rows_used;
            if (outcome == .no_room) run.ended += 1;
            if (outcome == .no_room and call.rows_used == 0) {
                run.left += 1;
                call.next += 1;
            }
        }
    }
    run.random = random.state;
}
