//! Mutates messages of the feed, their bytes and what is said of them, and has the kernel write their lines and columns.

const fuzz = @import("fuzz.zig");
const kernel = @import("kernel");
const std = @import("std");

const exchanges = kernel.exchanges;
const lines = kernel.lines;
const names_of = kernel.names;
const text_lines = kernel.text_lines;
const tree = kernel.tree;
const Message = kernel.feed_found.Message;

/// A message to begin with.
const Seed = extern struct {
    bytes: [*]const u8,
    size: u64,
    /// Its `pair` is the index of another seed; `start` is not looked at.
    message: Message,
};

const Run = extern struct {
    call: *lines.Lines,
    seeds: [*]const Seed,
    seeds_count: u64,
    /// Memory for messages, at whose end nothing may be read.
    room: [*]u8,
    room_size: u64,
    executions: u64,
    random: u64,
    /// Messages that were written, and that were left; calls that ended early.
    written: u64,
    left: u64,
    ended: u64,
    /// Lines of text.
    texts: u64,
    /// Tables of summaries.
    tables: [*]const text_lines.Table,
    /// Room for columns, and the programs that exchanges are read by.
    exchanges: *exchanges.Exchanges,
    /// Exchanges that are columns.
    rows: u64,
    /// How bodies are shown as trees.
    style: *const tree.Style,
    /// Lines of text with trees.
    trees: u64,
    /// Problems of bodies whose lines were written.
    problems: u64,
};

const MOST = 8;

/// Puts messages one after the other, so that the last one ends where the room does.
const Batch = struct {
    messages: [MOST]Message = undefined,
    /// What becomes of each, where a filter says so.
    shown: [MOST]lines.Shown = @splat(.written),
    count: usize = 0,
    /// Where the first one begins.
    at: usize,

    fn add(self: *Batch, run: *const Run, seed: *const Seed, random: *fuzz.Random) bool {
        if (self.count == MOST or seed.size > self.at) return false;
        const size = if (random.below(8) == 0) random.below(seed.size + 1) else seed.size;
        self.at -= size;
        const input = run.room[self.at..][0..size];
        @memcpy(input, seed.bytes[0..size]);
        const changes = if (random.below(3) == 0) 0 else random.below(4);
        for (0..changes) |_| fuzz.change(input, random);
        const message = &self.messages[self.count];
        message.* = seed.message;
        message.start = self.at;
        message.size = @intCast(size);
        message.flags.arena = random.below(2) == 0;
        message.pair = kernel.feed_found.NONE;
        message.number = @bitCast(random.next() >> @intCast(random.below(64)));
        if (random.below(4) == 0) self.shown[self.count] = @enumFromInt(random.below(4));
        self.count += 1;
        return true;
    }
};

/// Something that the feed says of a message is another thing.
pub fn disturb(message: *Message, random: *fuzz.Random) void {
    const value = random.next() >> @intCast(random.below(64));
    switch (random.below(14)) {
        0 => message.start = value,
        1 => message.size = @truncate(value),
        2 => message.body = @truncate(value),
        3 => message.client_id = @bitCast(@as(u16, @truncate(value))),
        4 => message.pair = @truncate(value),
        5 => message.pair = @truncate(value % MOST),
        6 => message.connection = @truncate(value % 8),
        7 => message.code = @truncate(value),
        8 => message.packet = @bitCast(value),
        9 => message.time = @bitCast(value),
        10 => message.latency = @bitCast(value),
        11 => message.duration = -@as(i64, @intCast(value >> 1)),
        12 => message.flags = @bitCast(@as(u8, @truncate(value))),
        else => message.first_packet = @bitCast(value),
    }
}

const ENDS = "192.0.2.1:40000 → [2001:db8::2]:9092";
const LABELS: [kernel.feed_found.KEYS * kernel.feed_found.VERSIONS]lines.Text = @splat(text("Produce v3   "));
const CONNECTIONS: [4]text_lines.Ends = @splat(.{ .request = text(ENDS), .response = text(ENDS), .number = 3 });
const Paint = @typeInfo(@typeInfo(@FieldType(kernel.summaries.Call, "paint")).optional.child).pointer.child;
const ERRORS = [_]lines.Text{ text("UNKNOWN_SERVER_ERROR"), text("NONE"), text("OFFSET_OUT_OF_RANGE"), text("") };
const PAINT = Paint{
    .failure = text("<"),
    .warning = text("("),
    .dim = text(""),
    .reset = text(">"),
    .names = &ERRORS,
    .names_size = ERRORS.len,
    .first = -1,
};
/// Characters that are shown in all ways.
const CHARACTERS: [256]u8 = characters: {
    var found: [256]u8 = undefined;
    for (&found, 0..) |*one, index| one.* = index % 5;
    break :characters found;
};
const PAGES: kernel.tree.Pages = @splat(.{ .characters = @ptrCast(&CHARACTERS) });
const CAPTURES = [_]lines.Text{ text("\x1ff@@@A"), text(""), text("\x1ff@@@B") };

const LONG: [300]u8 = @splat(0x74);
const NAMED = [_][]const u8{ "orders", "", "__own", "gr\u{f6}\u{df}e", "\xff", &LONG, "a \"b\"\n" };
const SESSION = "{\"partitions\":7}";
const HELD = [_]names_of.Session{.{ .partitions = 7, .text = SESSION, .text_size = SESSION.len }};

/// A table so small that it is full often, and what else is said of messages.
const Known = struct {
    topics: [64]names_of.Topic,
    wants: [8]u32,
    /// Which messages are in the session.
    sessions: [MOST]u32,
    names: names_of.Names,

    pub fn begin(self: *Known, count: u64, random: *fuzz.Random) *names_of.Names {
        for (&self.sessions) |*one| one.* = @intCast(random.below(HELD.len + 1));
        self.names.sessions = if (random.below(4) == 0) null else &self.sessions;
        self.names.sessions_size = count;
        self.names.held = &HELD;
        self.names.wants = &self.wants;
        self.names.wants_size = 1 + random.below(self.wants.len);
        if (random.below(4) == 0) self.clear();
        return &self.names;
    }

    pub fn clear(self: *Known) void {
        self.topics = @splat(.{ .id = @splat(0), .text = null, .size = 0, .state = .wanted });
        self.names.topics = &self.topics;
        self.names.mask = self.topics.len - 1;
        self.names.used = 0;
    }

    /// Answer as a caller does; false: the message is left.
    pub fn answer(self: *Known, index: u64, random: *fuzz.Random) bool {
        const names = &self.names;
        if (names.wanted > names.wants_size or names.index != index) @panic("asked of nothing");
        if (random.below(8) == 0) return false;
        for (self.wants[0..names.wanted]) |place| {
            const found = &self.topics[place];
            if (std.mem.allEqual(u8, &found.id, 0)) @panic("no topic");
            found.state = @enumFromInt(1 + random.below(3));
            const name = NAMED[random.below(NAMED.len)];
            if (found.state != .unknown) {
                found.text = name.ptr;
                found.size = @intCast(name.len);
            }
        }
        if (names.asks.room) {
            if (random.below(2) == 0) return false;
            self.clear();
        }
        return true;
    }
};

pub var known: Known = undefined;
/// Where the lines of each message end.
var line_ends: [MOST]u64 = undefined;

fn text(comptime words: []const u8) lines.Text {
    return .{ .text = words.ptr, .size = words.len };
}

/// Gives bytes for the requested batches.
fn decompress(run: *Run, random: *fuzz.Random) void {
    const call = run.call.call;
    for (call.batches[0..call.batches_wanted]) |*one| {
        const found = run.room[random.below(run.room_size)..run.room_size];
        one.records = found.ptr;
        one.size = found.len;
    }
    call.batches_given = call.batches_wanted;
}

/// The same messages as text.
fn texts(run: *Run, batch: *Batch, random: *fuzz.Random) void {
    const call = run.call.call;
    call.batches_given = 0;
    var style = run.style.*;
    style.pages = &PAGES;
    style.width = 40 + random.below(200);
    const has_trees = random.below(2) == 0;
    var writer = text_lines.TextLines{
        .source = run.call.source,
        .connections = &CONNECTIONS,
        .connections_size = CONNECTIONS.len,
        .labels = &LABELS,
        .captures = &CAPTURES,
        .captures_size = CAPTURES.len,
        .tables = run.tables,
        .summaries = .{
            .output = call.output,
            .output_size = 0,
            .names = if (random.below(4) == 0) null else known.begin(batch.count, random),
            .paint = if (random.below(4) == 0) null else &PAINT,
            .written = 0,
        },
        .style = if (has_trees) &style else null,
        .call = call,
        .wordings = run.call.wordings,
        .most = run.room_size,
        .data = null,
        .data_size = 0,
        .next = 0,
        .last = batch.count,
        .wanted = 0,
        .used = 0,
        .ends = &line_ends,
        .ends_size = batch.count,
        .first = 0,
        .problems = 0,
    };
    const shown = writer.source.shown;
    var given = false;
    while (true) {
        const before = writer.used;
        const first = writer.next;
        const outcome = kernel.kafkasniff_text_lines(&writer);
        if (outcome == .misuse) @panic("misuse");
        if (outcome == .asks and writer.summaries.names == null) @panic("asked without names");
        var written: u64 = 0;
        for (first..writer.next) |index| {
            const mark = if (shown) |marks| marks[index] else .written;
            if (mark == .left) @panic("a line that is Python's");
            written += @intFromBool(mark != .read);
            const end = if (index > first) line_ends[index - 1] else before;
            if ((line_ends[index] > end) != (mark != .read)) @panic("not the end of a line");
        }
        if (writer.used > call.output_size or (writer.used > before) != (written > 0)) @panic("not lines");
        if (writer.next > first and line_ends[writer.next - 1] != writer.used) @panic("not the end of the lines");
        if (writer.used > before and call.output[writer.used - 1] != '\n') @panic("not a line");
        run.texts += written;
        if (has_trees) run.trees += written;
        if (outcome == .done) {
            run.problems += writer.problems;
            return;
        }
        run.ended += 1;
        if (outcome == .new_page) @panic("a page that is known");
        if (outcome == .asks and known.answer(writer.next, random)) continue;
        if (outcome == .compressed and !given) {
            decompress(run, random);
            given = true;
            continue;
        }
        given = false;
        call.batches_given = 0;
        writer.next += 1;
    }
}

/// The same messages as columns, any two of them as an exchange.
fn columns(run: *Run, batch: *Batch, random: *fuzz.Random) void {
    const call = run.exchanges;
    const before = call.*;
    defer call.* = before;
    var pairs: [MOST]exchanges.Pair = undefined;
    for (pairs[0..batch.count], 0..) |*pair, index| {
        const asked = if (random.below(8) == 0) random.below(MOST + 1) else batch.messages[index].pair;
        pair.* = .{ .request = @truncate(asked), .response = @intCast(index) };
    }
    call.found.rows = &batch.messages;
    call.found.size = batch.count;
    call.found.buffer = run.room;
    call.found.buffer_size = run.room_size;
    call.found.arena = run.room;
    call.found.arena_size = run.room_size;
    call.pairs = &pairs;
    call.pairs_size = batch.count;
    call.headers = @intFromBool(random.below(8) == 0);
    // Programs have places of their own here, beyond the codes of a real table.
    call.bodies = null;
    call.records = @truncate(random.below(2));
    if (random.below(4) == 0) {
        inline for (.{ &call.requests, &call.responses, &call.names.texts }) |texts_of| texts_of.size = random.below(300);
        inline for (.{ "rows_size", "topics_size", "partitions_size", "batches_size" }) |name| {
            @field(call, name) = random.below(4);
        }
    }
    call.next = 0;
    while (call.next < batch.count) {
        const first = call.next;
        const outcome = kernel.kafkasniff_exchanges(call);
        if (outcome != .done and outcome != .no_room) @panic("misuse");
        if (call.rows_used > call.next - first) @panic("rows of no exchange");
        var topics: u64 = 0;
        var partitions: u64 = 0;
        var batches: u64 = 0;
        for (call.rows[0..call.rows_used]) |*row| {
            topics += row.topics;
            partitions += row.partitions;
            batches += row.batches;
        }
        if (topics != call.topics_used or partitions != call.partitions_used or batches != call.batches_used) @panic("not rows");
        run.rows += call.rows_used;
        if (outcome == .no_room and call.rows_used == 0) call.next += 1;
    }
}

pub export fn kafkasniff_fuzz_lines(run: *Run) void {
    var random = fuzz.Random{ .state = run.random | 1 };
    const call = run.call;
    const output_size = call.call.output_size;
    known.clear();
    var ends: [MOST]u64 = undefined;
    var states: [MOST]lines.State = undefined;
    var counts: [MOST]u8 = undefined;
    const last_word = call.wordings.size;
    for (0..run.executions) |_| {
        var batch = Batch{ .at = run.room_size };
        for (0..1 + random.below(3)) |_| {
            const seed = &run.seeds[random.below(run.seeds_count)];
            const asked = seed.message.pair;
            if (asked < run.seeds_count and random.below(8) > 0) _ = batch.add(run, &run.seeds[asked], &random);
            const before = batch.count;
            if (batch.add(run, seed, &random) and before > 0 and !batch.messages[before].flags.request)
                batch.messages[before].pair = @intCast(before - 1);
        }
        if (random.below(4) == 0) {
            disturb(&batch.messages[random.below(batch.count)], &random);
        }
        const records: u32 = if (random.below(8) == 0) @intCast(random.below(4)) else 0;
        const form: u32 = @intCast(random.below(3));
        const shown: u32 = @intCast(random.below(2));
        const payload: u32 = @intCast(random.below(3));
        call.call.wants = @bitCast(form | records << 2 | shown << 4 | payload << 6);
        call.call.output_size = if (random.below(8) == 0) random.below(2000) else output_size;
        call.source.found.rows = &batch.messages;
        call.source.found.size = batch.count;
        call.source.found.buffer = run.room;
        call.source.found.buffer_size = run.room_size;
        call.source.found.arena = run.room;
        call.source.found.arena_size = run.room_size;
        call.source.shown = if (random.below(2) == 0) null else &batch.shown;
        call.names = if (random.below(4) == 0) null else known.begin(batch.count, &random);
        call.next = 0;
        call.base = 0;
        call.last = batch.count;
        call.used = 0;
        call.ends = &ends;
        call.states = &states;
        call.counts = &counts;
        call.rows = random.below(2);
        call.wordings.size = if (random.below(8) == 0) random.below(last_word) else last_word;
        call.call.batches_given = 0;
        var given = false;
        while (true) {
            const outcome = kernel.kafkasniff_lines(call);
            if (outcome == .done) break;
            run.ended += 1;
            if (outcome == .misuse) @panic("misuse");
            if (outcome == .asks) {
                if (call.names == null) @panic("asked without names");
                if (known.answer(call.next, &random)) continue;
            }
            if (outcome == .compressed and !given) {
                decompress(run, &random);
                given = true;
                continue;
            }
            given = false;
            call.call.batches_given = 0;
            states[call.next] = .left;
            ends[call.next] = call.used;
            call.next += 1;
        }
        var begin: u64 = 0;
        for (states[0..batch.count], ends[0..batch.count], 0..) |state, end, index| {
            const found = call.call.output[begin..end];
            const mark = call.source.shownOf(index);
            if (mark == .left and state != .left) @panic("a line that is Python's");
            switch (state) {
                .written => {
                    if (mark == .read) {
                        if (found.len != 0) @panic("a line that nobody is shown");
                        continue;
                    }
                    run.written += 1;
                    run.problems += counts[index];
                    if (std.mem.indexOfScalar(u8, found, '\n') != found.len - 1) @panic("not one line");
                    if (call.rows != 0) {
                        if (std.mem.count(u8, found, ",") < 18) @panic("not a row");
                        begin = end;
                        continue;
                    }
                    if (found.len < 200 or found[0] != '{' or found[found.len - 2] != '}') @panic("not a line");
                },
                .left => {
                    run.left += 1;
                    if (found.len != 0) @panic("a line that is Python's");
                },
            }
            begin = end;
        }
        texts(run, &batch, &random);
        columns(run, &batch, &random);
    }
    call.call.output_size = output_size;
    call.wordings.size = last_word;
    run.random = random.state;
}
