//! The stream engine: owns all TCP connections of its shard, from their first packet to their last.
//!
//! Packets in, rows out (`stream_types.Row`): messages with the addresses of their bytes, ends of exchanges, problems and
//! accounts, as numbers that Python words. What only Python can judge is a question in mid-packet (`Question`), so the
//! engine is used by one thread at a time. The result depends neither on batches nor on other connections.

const connections = @import("stream_connection.zig");
const found_messages = @import("feed_found.zig");
const exhausted = memory.exhausted;
const kafkas = @import("stream_kafka.zig");
const links = @import("link.zig");
const kept_requests = @import("stream_kept.zig");
const lists = @import("stream_lists.zig");
const memory = @import("stream_memory.zig");
const saving = @import("stream_state.zig");
const std = @import("std");
pub const types = @import("stream_types.zig");

const Connection = connections.Connection;
const Key = connections.Key;
const NONE = lists.NONE;
const NO_TIME = types.NO_TIME;

/// A connection silent for an hour of packet time is over; brokers close idle ones after ten minutes by default.
const IDLE_NS = 3_600_000_000_000;
/// A closed connection is remembered for a minute (TIME_WAIT), so that late copies of its packets open no new one.
const LINGER_NS = 60_000_000_000;
/// This many expired deadlines cost less than searching for them.
const FEW_DEADLINES = 1_000;
/// Larger messages are rows.
const MAX_REGULAR = 4 << 20;
const KEYS = found_messages.KEYS;
const VERSIONS = found_messages.VERSIONS;

pub const Options = extern struct {
    /// Keys of hashes.
    secret: [2]u64,
    /// Largest frame accepted.
    max_frame: i64,
    /// Ports that are taken as Kafka, and no others; none: any port may be.
    ports: [*]const u16,
    ports_count: u64,
    /// Times of problems of packets that all connections together may remember, for queries about exchanges.
    remembered: u64,
    follows: Follows,
};

/// What is noted of the network of connections: nothing; a row at the end of each; also facts with each exchange.
pub const Follows = enum(u64) { nothing, links, exchanges };

pub const Callback = *const fn (*types.Ask) callconv(.c) i32;

/// An item for TLS.
const ItemFields = struct {
    order: i64 = 0,
    packet: i64 = 0,
    time: i64 = NO_TIME,
    released: i64 = NO_TIME,
    size: i64 = 0,
    flags: i64 = 0,
    data: []const u8 = &.{},
};

pub const Engine = struct {
    pool: memory.Pool = .{},
    gpa: std.mem.Allocator = undefined,
    /// Memory of connections themselves.
    places: std.heap.MemoryPool(Connection) = .empty,
    callback: Callback,
    secret: [2]u64,
    max_frame: i64,
    ports: []u16 = &.{},
    /// The highest plausible version of each API, by key, once a search needed it; -1: the key is unknown.
    versions: []i32 = &.{},
    follows: Follows,
    most_remembered: u64,
    remembered: u64 = 0,
    /// By place; null: free.
    list: std.ArrayList(?*Connection) = .empty,
    unused: std.ArrayList(u32) = .empty,
    /// The first connection of each row of the table, by place.
    heads: std.ArrayList(u32) = .empty,
    count: u32 = 0,
    /// When to look at connections again, by place and index.
    deadlines: lists.Heap = .{},
    rows: std.ArrayList(types.Row) = .empty,
    /// Regular messages, which writers of lines and columns read as they are: whole, of a known kind, and in order.
    messages: std.ArrayList(found_messages.Message) = .empty,
    /// Requests of earlier calls that were kept and leave in this one; `pair`: the index of a regular response.
    asked: std.ArrayList(found_messages.Message) = .empty,
    /// Bytes of both that are not in the batch.
    arena_size: u64 = 0,
    /// Bytes of the requests that are kept.
    kept_bytes: u64 = 0,
    buffer: []const u8 = &.{},
    step: u32 = 0,
    calls: u32 = 0,
    freed: std.ArrayList(u32) = .empty,
    opened: std.ArrayList(types.Opened) = .empty,
    endings: std.ArrayList(types.Ending) = .empty,
    link_rows: std.ArrayList(types.LinkRow) = .empty,
    stalls: std.ArrayList(types.LinkStall) = .empty,
    networks: std.ArrayList(types.Network) = .empty,
    /// Memory that rows refer to, freed with the next call.
    retired: std.ArrayList([]u8) = .empty,
    facts: [KEYS][VERSIONS]types.Facts = @splat(@splat(.{})),
    totals: types.Totals = .{},
    /// Number of connections so far.
    connections: u32 = 0,
    questions: u64 = 0,
    clock: i64 = NO_TIME,
    end_clock: i64 = NO_TIME,
    end_order: i64 = 0,
    saved: std.ArrayList(u8) = .empty,
    holdings: std.ArrayList(types.Holding) = .empty,
    /// The connection of the present question; `inside`: Python passes an item of its clear streams.
    now: ?*Connection = null,
    inside: bool = false,

    // -- results ------------------------------------------------------------------------------------------------------

    /// Appends a row of a connection.
    pub fn put(e: *Engine, c: *Connection, one: types.Row) void {
        var row = one;
        row.connection = c.index;
        row.order = c.kafka.log.order;
        row.step = e.step;
        e.step += 1;
        switch (row.kind) {
            .request, .response, .token => {},
            else => {
                row.packet = c.kafka.log.packet;
                row.time = c.kafka.log.time;
            },
        }
        e.rows.append(e.gpa, row) catch exhausted();
    }

    /// Appends a regular message, if it is one; returns its index. `pair`: its request's.
    pub fn putRegular(
        e: *Engine,
        c: *Connection,
        row: *const types.Row,
        flags: found_messages.Flags,
        client_id: i16,
        pair: ?u32,
    ) ?u32 {
        if (c.ending or row.size != row.have or row.size > MAX_REGULAR or row.retransmits > std.math.maxInt(u16)) return null;
        if (row.time == NO_TIME or row.first_time == NO_TIME) return null;
        if (row.key < 0 or row.key >= KEYS or row.version < 0 or row.version >= VERSIONS) return null;
        const index: u32 = @intCast(e.messages.items.len);
        const first = @intFromPtr(e.buffer.ptr);
        const inside = row.at >= first and row.at + row.size <= first + e.buffer.len;
        var all = flags;
        all.arena = !inside and !flags.ended;
        e.messages.append(e.gpa, .{
            .order = c.kafka.log.order,
            .start = if (inside) row.at - first else if (flags.ended) 0 else row.at,
            .first_packet = row.first_packet,
            .last_packet = row.last_packet,
            .packet = row.packet,
            .first_time = row.first_time,
            .time = row.time,
            .latency = if (row.latency == NO_TIME) 0 else row.latency,
            .duration = if (row.duration == NO_TIME) 0 else row.duration,
            .ordinal = row.ordinal,
            .position = row.position,
            .connection = c.place,
            .size = row.size,
            .pair = pair orelse NONE,
            .correlation = row.correlation,
            .body = row.body,
            .code = @intCast(@as(u32, @intCast(row.key)) * VERSIONS + @as(u32, @intCast(row.version))),
            .client_id = client_id,
            .step = e.step,
            .flags = all,
            .retransmits = @intCast(row.retransmits),
            .behind = @max(row.behind, 0),
            .muted = @max(row.muted, 0),
        }) catch exhausted();
        e.step += 1;
        if (all.arena) e.arena_size += row.size;
        if (pair) |asked| if (asked != NONE) {
            e.messages.items[asked].pair = index;
        };
        return index;
    }

    /// Copies the messages that are not in the batch to `out`, and makes their starts positions there.
    pub fn gather(e: *Engine, out: [*]u8) void {
        var at: u64 = 0;
        for (e.messages.items) |*message| if (message.flags.arena) {
            const source: [*]const u8 = @ptrFromInt(message.start);
            @memcpy(out[at..][0..message.size], source[0..message.size]);
            message.start = at;
            at += message.size;
        };
        for (e.asked.items) |*message| {
            const source: [*]const u8 = @ptrFromInt(message.start);
            const size: usize = @intCast(message.latency);
            @memcpy(out[at..][0..size], source[0..size]);
            message.start = at;
            message.latency = 0;
            at += size;
        }
    }

    /// Reports a TCP problem at a place, or at the verdict.
    pub fn tcpProblem(
        e: *Engine,
        c: *Connection,
        d: usize,
        place: kafkas.Log,
        kind: types.TcpProblem,
        number: i64,
        last: bool,
    ) void {
        if (c.kafka.ignored) return;
        if (c.kafka.wrapped and !e.inside) return e.item(c, .problem, d, .{
            .order = place.order,
            .packet = place.packet,
            .time = place.time,
            .size = number,
            .flags = @as(i64, @backingInt(kind)) << 1 | @intFromBool(last),
        });
        e.putProblem(c, d, place, .{ .kind = .tcp, .a = @backingInt(kind), .b = number, .flags = if (last) types.LAST else 0 });
    }

    /// Reports a problem that Python has worded.
    pub fn textProblem(e: *Engine, c: *Connection, d: usize, place: kafkas.Log, text: i64, count: i64) void {
        e.putProblem(c, d, place, .{ .kind = .text, .a = text, .b = count });
    }

    fn putProblem(e: *Engine, c: *Connection, d: usize, place: kafkas.Log, one: types.Row) void {
        const kafka = &c.kafka;
        if (kafka.verdict == .not) return;
        var row = one;
        row.direction = @intCast(d);
        if (kafka.verdict == .kafka) {
            kafka.log.at(place.order, place.time, place.packet);
            return e.put(c, row);
        }
        kafka.held_order = @max(kafka.held_order, place.order);
        row.flags |= types.BEFORE_VERDICT;
        e.put(c, row);
        const last = &e.rows.items[e.rows.items.len - 1];
        last.order, last.time, last.packet = .{ place.order, place.time, place.packet };
    }

    pub fn account(e: *Engine, c: *Connection, ending: *types.Ending) void {
        const kafka = &c.kafka;
        const end = &c.end.?;
        ending.first_order = c.first_order;
        ending.last_time = end.time;
        ending.packets = end.packets;
        ending.retransmits = kafka.retransmits;
        ending.verdict = @backingInt(kafka.verdict);
        ending.client = kafka.client;
        ending.syn_seen = @intFromBool(c.streams[0].isn != null or c.streams[1].isn != null);
        ending.by = if (c.ended_by) |by| @intCast(by) else -1;
        ending.by_time = c.ended_time;
        var seen: i64 = 0;
        for (0..2) |d| {
            ending.heard[d] = @intFromBool(c.streams[d].heard);
            ending.repeated[d] = c.streams[d].repeated;
            ending.ignored[d] = c.streams[d].ignored;
            const stream = if (kafka.talk) |talk| &talk.streams[d] else continue;
            ending.decoded[d] = stream.framed - stream.unread;
            ending.skipped[d] = stream.seen - ending.decoded[d];
            ending.lost[d] = stream.lost;
            ending.pending[d] = stream.pending;
            e.totals.pending += stream.pending;
            seen += stream.seen;
        }
        if (kafka.verdict == .undecided and seen != 0) e.totals.undecided += 1;
        e.endings.append(e.gpa, ending.*) catch exhausted();
        e.put(c, .{ .kind = .closed, .a = @intCast(e.endings.items.len - 1) });
    }

    /// Frees memory when the rows of this call are no longer needed.
    pub fn retire(e: *Engine, bytes: []u8) void {
        if (bytes.len != 0) e.retired.append(e.gpa, bytes) catch exhausted();
    }

    /// Bytes that connections hold, without themselves, and without what only the results of a call take.
    fn kept(e: *const Engine) u64 {
        var transient: u64 = e.rows.capacity * @sizeOf(types.Row) + e.messages.capacity * @sizeOf(found_messages.Message);
        transient += e.asked.capacity * @sizeOf(found_messages.Message);
        transient += e.opened.capacity * @sizeOf(types.Opened) + e.endings.capacity * @sizeOf(types.Ending);
        transient += e.retired.capacity * @sizeOf([]u8) + e.saved.capacity + e.holdings.capacity * @sizeOf(types.Holding);
        transient += e.link_rows.capacity * @sizeOf(types.LinkRow) + e.stalls.capacity * @sizeOf(types.LinkStall);
        transient += e.networks.capacity * @sizeOf(types.Network);
        for (e.retired.items) |bytes| transient += bytes.len;
        return e.pool.used -| transient;
    }

    fn clear(e: *Engine) void {
        for (e.retired.items) |bytes| e.gpa.free(bytes);
        e.retired.clearRetainingCapacity();
        e.rows.clearRetainingCapacity();
        e.messages.clearRetainingCapacity();
        e.asked.clearRetainingCapacity();
        e.arena_size = 0;
        e.step = 0;
        e.calls +%= 1;
        e.buffer = &.{};
        e.unused.appendSlice(e.gpa, e.freed.items) catch exhausted();
        e.freed.clearRetainingCapacity();
        e.opened.clearRetainingCapacity();
        e.endings.clearRetainingCapacity();
        e.link_rows.clearRetainingCapacity();
        e.stalls.clearRetainingCapacity();
        e.networks.clearRetainingCapacity();
    }

    // -- questions ----------------------------------------------------------------------------------------------------

    pub fn question(e: *Engine, c: *Connection, kind: types.Question, d: usize) types.Ask {
        e.now = c;
        const kafka = &c.kafka;
        var q = std.mem.zeroInit(types.Ask, .{ .kind = kind });
        q.connection = c.index;
        q.direction = @intCast(d);
        q.verdict = @backingInt(kafka.verdict);
        const talk = kafka.talk orelse return q;
        for (&talk.streams, &q.aligned) |*stream, *aligned| aligned.* = @intFromBool(stream.aligned);
        return q;
    }

    pub fn ask(e: *Engine, q: *types.Ask) types.Answer {
        e.questions += 1;
        return @fromBackingInt(e.callback(q));
    }

    /// Asks about the bytes of a message.
    pub fn askBytes(
        e: *Engine,
        c: *Connection,
        kind: types.Question,
        bytes: []const u8,
        key: i16,
        version: i16,
        cut: bool,
    ) bool {
        var q = e.question(c, kind, 0);
        q.data = @intFromPtr(bytes.ptr);
        q.size = bytes.len;
        q.a = key;
        q.b = version;
        q.c = @intFromBool(cut);
        return e.ask(&q) == .enter;
    }

    pub fn factsOf(e: *Engine, c: *Connection, key: i16, version: i16) types.Facts {
        const small = key >= 0 and key < KEYS and version >= 0 and version < VERSIONS;
        if (small) {
            const known = e.facts[@intCast(key)][@intCast(version)];
            if (known.traits.asked) return known;
        }
        var q = e.question(c, .facts, 0);
        q.a = key;
        q.b = version;
        const traits: types.Traits = @bitCast(@as(u8, @truncate(@as(u32, @bitCast(@backingInt(e.ask(&q)))))));
        var found = types.Facts{ .traits = traits, .request = q.out_programs[0], .response = q.out_programs[1] };
        found.traits.asked = true;
        if (small) e.facts[@intCast(key)][@intCast(version)] = found;
        return found;
    }

    pub fn highestVersions(e: *Engine, c: *Connection) []const i32 {
        if (e.versions.len == 0) {
            var q = e.question(c, .highest_versions, 0);
            _ = e.ask(&q);
            if (q.size != 0) e.versions = e.gpa.dupe(i32, @as([*]const i32, @ptrFromInt(q.data))[0..q.size]) catch exhausted();
        }
        return e.versions;
    }

    /// Passes an item of a TLS connection to Python, which calls `kafkasniff_streams_item` for those of its clear streams.
    pub fn item(e: *Engine, c: *Connection, kind: types.Item, d: usize, fields: ItemFields) void {
        var q = e.question(c, .item, d);
        q.a = @backingInt(kind);
        q.b = fields.size;
        q.c = fields.flags;
        q.order = fields.order;
        q.packet = fields.packet;
        q.time = fields.time;
        q.released = fields.released;
        q.data = @intFromPtr(fields.data.ptr);
        q.size = fields.data.len;
        // Plain: it is not TLS.
        if (e.ask(&q) == .enter) c.kafka.wrapped = false;
    }

    /// An item of the clear streams of the connection of the present question.
    pub fn clearItem(e: *Engine, q: *const types.Ask) void {
        const c = e.now orelse return;
        const d: usize = @min(q.direction, 1);
        const outer = e.inside;
        e.inside = true;
        defer {
            e.inside = outer;
            e.now = c;
        }
        const given: []const u8 = if (q.size == 0) &.{} else @as([*]const u8, @ptrFromInt(q.data))[0..q.size];
        const place = kafkas.Log{ .order = q.order, .time = q.time, .packet = q.packet };
        switch (@as(types.Item, @fromBackingInt(@mod(q.a, 11)))) {
            .segment => if (given.len != 0) kafkas.segment(e, c, d, .{
                .data = e.copied(given),
                .packet = q.packet,
                .time = q.time,
                .order = q.order,
                .released = q.released,
            }),
            .started => kafkas.started(e, c, d, q.b != 0),
            .gap => kafkas.gap(e, c, d, .{
                .order = q.order,
                .size = q.b,
                .packet = q.packet,
                .time = q.time,
                .snapped = q.c & 1 != 0,
                .resumed = q.released,
                .unheard = q.c & 2 != 0,
                .exact = q.c & 4 == 0,
            }),
            .late => {
                var p = std.mem.zeroInit(types.Packet, .{ .data = e.copied(given) });
                p.order, p.packet, p.time = .{ q.order, q.packet, q.time };
                kafkas.late(e, c, d, &p);
            },
            .hole => kafkas.hole(e, c, d, q.order, q.b != 0),
            .retransmit => kafkas.retransmit(e, c, d, q.order),
            .closed => if (c.end != null) kafkas.closed(e, c),
            .wrapped => {
                kafkas.Talk.of(e, c).streams[d].seen += q.b;
                e.totals.seen += q.b;
            },
            .rejected => kafkas.rejected(e, c, d, place, q.c),
            .text, .problem => e.textProblem(c, d, place, q.c, q.b),
        }
    }

    /// A copy that lives as long as the rows.
    fn copied(e: *Engine, bytes: []const u8) []u8 {
        const copy = e.gpa.dupe(u8, bytes) catch exhausted();
        e.retire(copy);
        return copy;
    }

    // -- connections --------------------------------------------------------------------------------------------------

    fn hashOf(e: *const Engine, key: *const Key) u64 {
        var hasher = std.crypto.auth.siphash.SipHash64(1, 3).init(std.mem.asBytes(&e.secret));
        hasher.update(std.mem.asBytes(&key.high));
        hasher.update(std.mem.asBytes(&key.low));
        hasher.update(std.mem.asBytes(&key.port));
        return hasher.finalInt();
    }

    fn headOf(e: *const Engine, key: *const Key) *u32 {
        return &e.heads.items[e.hashOf(key) & (e.heads.items.len - 1)];
    }

    fn find(e: *const Engine, key: *const Key) ?*Connection {
        if (e.count == 0) return null;
        var at = e.headOf(key).*;
        while (at != NONE) {
            const c = e.list.items[at].?;
            if (c.key.eql(key)) return c;
            at = c.next;
        }
        return null;
    }

    pub fn enter(e: *Engine, c: *Connection) void {
        if (e.count == e.heads.items.len) {
            e.heads.resize(e.gpa, @max(64, 2 * e.heads.items.len)) catch exhausted();
            @memset(e.heads.items, NONE);
            for (e.list.items) |one| if (one) |other| e.link(other);
        }
        if (e.unused.pop()) |place| {
            c.place = place;
            e.list.items[place] = c;
        } else {
            c.place = @intCast(e.list.items.len);
            e.list.append(e.gpa, c) catch exhausted();
        }
        e.count += 1;
        e.link(c);
    }

    /// Enters a connection of a state.
    pub fn enterLoaded(e: *Engine, c: *Connection) void {
        c.index = e.connections;
        e.connections += 1;
        if (c.link) |found| e.remembered += found.remembered();
        e.enter(c);
        const wait: i64 = if (c.closed) LINGER_NS else IDLE_NS;
        e.schedule(c, (if (c.clock == NO_TIME) e.clock else c.clock) +| wait);
    }

    fn link(e: *Engine, c: *Connection) void {
        const head = e.headOf(&c.key);
        c.next = head.*;
        head.* = c.place;
    }

    fn forget(e: *Engine, c: *Connection) void {
        var at = e.headOf(&c.key);
        while (at.* != c.place) at = &e.list.items[at.*].?.next;
        at.* = c.next;
        e.list.items[c.place] = null;
        // Not before the next call: rows of this one have the place.
        e.freed.append(e.gpa, c.place) catch exhausted();
        e.count -= 1;
        e.put(c, .{ .kind = .forgotten });
        links.describe(e, c);
        c.free(e);
        e.places.destroy(c);
    }

    pub fn newConnection(e: *Engine) *Connection {
        return e.places.create(std.heap.page_allocator) catch exhausted();
    }

    /// Begins a connection at a packet; `syn`: its SYN, if that came before.
    fn open(e: *Engine, key: *const Key, p: *const types.Packet, syn: ?types.Packet) *Connection {
        const c = e.newConnection();
        const first = if (syn) |one| one else p.*;
        c.* = .{
            .key = key.*,
            .index = e.connections,
            .place = NONE,
            .next = NONE,
            .first_order = p.order,
            .first_packet = first.packet,
            .first_time = first.time,
            .last_packet = first.packet,
            .last_time = first.time,
            .clock = first.clock,
        };
        e.connections += 1;
        if (e.ports.len != 0) {
            // Direction d is sent by endpoint d: the client's is the one whose target is the port.
            const client: i8 = if (e.isPort(key.port[1])) 0 else if (e.isPort(key.port[0])) 1 else -1;
            c.kafka.client = client;
            c.kafka.forced = client >= 0;
            c.kafka.ignored = client < 0;
            for (&c.streams) |*stream| stream.counts = client >= 0;
        }
        e.enter(c);
        e.opened.append(e.gpa, .{
            .high = key.high,
            .low = key.low,
            .port = key.port,
            .forced = c.kafka.client,
            .place = c.place,
            .first_order = c.first_order,
            .first_packet = c.first_packet,
            .first_time = c.first_time,
        }) catch exhausted();
        e.put(c, .{ .kind = .opened, .a = @intCast(e.opened.items.len - 1) });
        e.schedule(c, p.clock +| IDLE_NS);
        return c;
    }

    fn isPort(e: *const Engine, port: u16) bool {
        return std.mem.indexOfScalar(u16, e.ports, port) != null;
    }

    fn schedule(e: *Engine, c: *Connection, deadline: i64) void {
        c.deadline = deadline;
        // The clock cannot pass it.
        if (deadline == std.math.maxInt(i64)) return;
        e.deadlines.push(e.gpa, deadline, c.index, c.place);
    }

    /// Whether a deadline still is the one of its connection.
    pub fn isValid(e: *const Engine, index: i64, place: u32) bool {
        const c = e.list.items[place] orelse return false;
        return c.index == index;
    }

    /// Ends a silent connection at the first packet of any connection after its deadline.
    fn closeIdle(e: *Engine, c: *Connection, b: *const types.Batch) void {
        const due = c.clock +| IDLE_NS;
        const row = std.sort.partitionPoint(i64, b.tick_clock[0..b.ticks], due, isBefore);
        const order = if (row < b.ticks) b.tick_order[row] else b.end_order;
        connections.close(e, c, .idle, &farewell(c, order, due));
    }

    fn isBefore(due: i64, clock: i64) bool {
        return clock < due;
    }

    // -- packets ------------------------------------------------------------------------------------------------------

    pub fn take(e: *Engine, b: *const types.Batch) void {
        e.clear();
        e.buffer = b.buffer[0..b.buffer_size];
        e.end_order = @max(e.end_order, b.end_order);
        e.end_clock = @max(e.end_clock, b.end_clock);
        var last: ?*Connection = null;
        for (0..b.rows) |i| {
            var key = Key{
                .high = .{ b.src_hi[i], b.dst_hi[i] },
                .low = .{ b.src_lo[i], b.dst_lo[i] },
                .port = .{ b.src_port[i], b.dst_port[i] },
            };
            const higher = if (key.high[0] != key.high[1])
                key.high[0] > key.high[1]
            else if (key.low[0] != key.low[1]) key.low[0] > key.low[1] else key.port[0] > key.port[1];
            if (higher) {
                std.mem.swap(u64, &key.high[0], &key.high[1]);
                std.mem.swap(u64, &key.low[0], &key.low[1]);
                std.mem.swap(u16, &key.port[0], &key.port[1]);
            }
            const offset: usize = @intCast(b.offset[i]);
            const length: usize = @intCast(@max(b.length[i], 0));
            const p = types.Packet{
                .dir = @intFromBool(higher),
                .order = b.order[i],
                .packet = (@as(i64, b.capture[i]) << 40) | b.number[i],
                .time = b.time_ns[i],
                .clock = b.clock[i],
                .seq = b.seq[i],
                .ack = b.ack[i],
                .flags = b.flags[i],
                .data = b.buffer[0..b.buffer_size][offset..][0..length],
                .wire = b.wire_length[i],
                .ident = b.ident[i],
                .window = b.window[i],
            };
            const known = if (last != null and last.?.key.eql(&key)) last else e.find(&key);
            const before = if (b.positions != null and known != null) known.?.streams[p.dir].next else null;
            last = e.takePacket(b, &key, &p, known);
            if (b.owners) |owners| owners[i] = last.?.index;
            if (b.positions) |positions| {
                positions[i] = last.?.streams[p.dir].offset(&p, if (last == known) before else null);
            }
        }
        if (b.ticks == 0) return;
        e.clock = b.tick_clock[b.ticks - 1];
        e.evict(b);
    }

    inline fn takePacket(
        e: *Engine,
        b: *const types.Batch,
        key: *const Key,
        p: *const types.Packet,
        known: ?*Connection,
    ) *Connection {
        var c = known orelse e.open(key, p, null);
        if (c.clock != NO_TIME and p.clock -| c.clock >= @as(i64, if (c.closed) LINGER_NS else IDLE_NS)) {
            if (!c.closed) e.closeIdle(c, b);
            e.forget(c);
            c = e.open(key, p, null);
        }
        if (!connections.plain(e, c, p) and connections.handle(e, c, p)) {
            const syn = connections.pendingPacket(c, p.order);
            e.forget(c);
            c = e.open(key, p, syn);
            if (syn) |one| _ = connections.handle(e, c, &one);
            _ = connections.handle(e, c, p);
        }
        c.clock = p.clock;
        if (c.closed and c.clock +| LINGER_NS < c.deadline) e.schedule(c, c.clock +| LINGER_NS);
        return c;
    }

    /// Ends connections whose deadline the packet clock has passed, and forgets ended ones.
    fn evict(e: *Engine, b: *const types.Batch) void {
        while (e.deadlines.top()) |top| {
            if (top.key > e.clock) break;
            _ = e.deadlines.pop();
            if (!e.isValid(top.ordinal, top.place)) continue;
            const c = e.list.items[top.place].?;
            if (c.deadline != top.key) continue;
            const wait: i64 = if (c.closed) LINGER_NS else IDLE_NS;
            const since = if (c.clock == NO_TIME) e.clock else c.clock;
            if (e.clock -| since < wait) {
                e.schedule(c, since +| wait);
                continue;
            }
            if (!c.closed) e.closeIdle(c, b);
            e.forget(c);
        }
        // Connections that ended long before their first deadline: many short ones would fill the memory.
        if (e.deadlines.entries.items.len > 2 * e.count + FEW_DEADLINES) e.deadlines.trim(e.count, e);
    }

    /// The end of the capture: all connections end; long silent ones ended before.
    pub fn finish(e: *Engine, most: u32) void {
        e.clear();
        const now = @max(e.clock, e.end_clock);
        const every = e.inOrder();
        for (every[0..@min(most, every.len)]) |c| {
            if (!c.closed) {
                const silent = c.clock != NO_TIME and now -| c.clock >= IDLE_NS;
                connections.close(e, c, if (silent) .idle else .end, &farewell(c, e.end_order, now));
            }
            e.forget(c);
        }
        if (e.count != 0) return;
        e.deadlines.free(e.gpa);
        e.places.deinit(std.heap.page_allocator);
        e.places = .empty;
    }

    /// All connections in the order of their beginnings; valid until the next row is made.
    pub fn inOrder(e: *Engine) []const *Connection {
        var every: std.ArrayList(*Connection) = .empty;
        for (e.list.items) |one| if (one) |c| every.append(e.gpa, c) catch exhausted();
        std.mem.sortUnstable(*Connection, every.items, {}, beganBefore);
        e.retire(std.mem.sliceAsBytes(every.allocatedSlice()));
        return every.items;
    }

    fn beganBefore(_: void, a: *Connection, b: *Connection) bool {
        return a.index < b.index;
    }

    /// Ends a connection here; its later packets begin in mid-stream.
    pub fn letGo(e: *Engine, index: u32) void {
        for (e.list.items) |one| if (one) |c| if (c.index == index) {
            if (!c.closed) connections.close(e, c, .idle, &farewell(c, e.end_order, c.clock));
            return e.forget(c);
        };
    }

    pub fn free(e: *Engine) void {
        e.clear();
        for (e.list.items) |one| if (one) |c| {
            c.free(e);
        };
        e.places.deinit(std.heap.page_allocator);
        e.clear();
        e.list.clearAndFree(e.gpa);
        e.unused.clearAndFree(e.gpa);
        e.heads.clearAndFree(e.gpa);
        e.deadlines.free(e.gpa);
        e.freed.clearAndFree(e.gpa);
        e.rows.clearAndFree(e.gpa);
        e.messages.clearAndFree(e.gpa);
        e.asked.clearAndFree(e.gpa);
        e.opened.clearAndFree(e.gpa);
        e.endings.clearAndFree(e.gpa);
        e.link_rows.clearAndFree(e.gpa);
        e.stalls.clearAndFree(e.gpa);
        e.networks.clearAndFree(e.gpa);
        e.retired.clearAndFree(e.gpa);
        e.saved.clearAndFree(e.gpa);
        e.holdings.clearAndFree(e.gpa);
        e.gpa.free(e.ports);
        e.ports = &.{};
        e.gpa.free(e.versions);
        e.versions = &.{};
    }
};

/// The position at which a connection ends if no packet ends it.
fn farewell(c: *const Connection, order: i64, clock: i64) types.Packet {
    return std.mem.zeroInit(types.Packet, .{
        .order = order,
        .packet = c.last_packet,
        .time = c.last_time,
        .clock = clock,
        .data = @as([]const u8, &.{}),
    });
}

// -- exported functions -------------------------------------------------------------------------------------------------------

/// A new engine; null if there is no memory.
pub export fn kafkasniff_streams_new(callback: Callback, options: *const Options) ?*Engine {
    const e = std.heap.page_allocator.create(Engine) catch return null;
    e.* = .{
        .callback = callback,
        .secret = options.secret,
        .max_frame = options.max_frame,
        .follows = options.follows,
        .most_remembered = options.remembered,
    };
    e.gpa = e.pool.allocator();
    e.ports = e.gpa.dupe(u16, options.ports[0..options.ports_count]) catch exhausted();
    return e;
}

/// Gives all memory back; returns the bytes that were still in use, which should be 0.
pub export fn kafkasniff_streams_free(e: *Engine) u64 {
    e.free();
    const left = e.pool.used;
    e.pool.deinit();
    std.heap.page_allocator.destroy(e);
    return left;
}

/// Processes the next packets in capture order.
pub export fn kafkasniff_streams_take(e: *Engine, batch: *const types.Batch) void {
    e.take(batch);
}

/// Ends the capture: the first connections end, `most` of them.
pub export fn kafkasniff_streams_finish(e: *Engine, most: u32) void {
    e.finish(most);
}

/// Ends these connections, by their indices.
pub export fn kafkasniff_streams_let_go(e: *Engine, indices: [*]const u32, count: u64) void {
    e.clear();
    for (indices[0..count]) |index| e.letGo(index);
}

/// Frees what the results of the last call refer to.
pub export fn kafkasniff_streams_release(e: *Engine) void {
    e.clear();
}

/// Results of the last call.
pub export fn kafkasniff_streams_view(e: *Engine, view: *types.View) void {
    view.* = .{
        .rows = @intFromPtr(e.rows.items.ptr),
        .rows_count = e.rows.items.len,
        .messages = @intFromPtr(e.messages.items.ptr),
        .messages_count = e.messages.items.len,
        .asked = @intFromPtr(e.asked.items.ptr),
        .asked_count = e.asked.items.len,
        .arena_size = e.arena_size,
        .kept_bytes = e.kept_bytes,
        .opened = @intFromPtr(e.opened.items.ptr),
        .opened_count = e.opened.items.len,
        .endings = @intFromPtr(e.endings.items.ptr),
        .endings_count = e.endings.items.len,
        .links = @intFromPtr(e.link_rows.items.ptr),
        .links_count = e.link_rows.items.len,
        .stalls = @intFromPtr(e.stalls.items.ptr),
        .stalls_count = e.stalls.items.len,
        .networks = @intFromPtr(e.networks.items.ptr),
        .networks_count = e.networks.items.len,
        .totals = e.totals,
        .memory = e.kept(),
        .connections = e.count,
        .questions = e.questions,
    };
}

/// The network of all connections so far, as the links of the results of a call.
pub export fn kafkasniff_streams_links(e: *Engine) void {
    e.clear();
    for (e.inOrder()) |c| links.describe(e, c);
}

/// Copies the messages that are not in the batch, once: `View.arena_size` bytes.
pub export fn kafkasniff_streams_gather(e: *Engine, out: [*]u8) void {
    e.gather(out);
}

/// Keeps requests of the last call until they leave (`stream_kept.keep`).
pub export fn kafkasniff_streams_keep(
    e: *Engine,
    rows: [*]const found_messages.Message,
    count: u64,
    buffer: [*]const u8,
    arena: [*]const u8,
    whole: bool,
) void {
    kept_requests.keep(e, rows[0..count], buffer, arena, whole);
}

/// Within a question about an item: an item of the clear streams.
pub export fn kafkasniff_streams_item(e: *Engine, q: *const types.Ask) void {
    e.clearItem(q);
}

/// The state of a connection between two batches, by its place; valid until the next call.
pub export fn kafkasniff_streams_save(e: *Engine, place: u32, size: *u64) ?[*]const u8 {
    e.saved.clearRetainingCapacity();
    if (place >= e.list.items.len) return null;
    saving.save(e, e.list.items[place] orelse return null, &e.saved);
    size.* = e.saved.items.len;
    return e.saved.items.ptr;
}

/// Continues a connection that was saved; its number, and its place at `place`. -1: these bytes are invalid, and the
/// engine is of no use.
pub export fn kafkasniff_streams_load(e: *Engine, bytes: [*]const u8, size: u64, place: *u32) i64 {
    const c = saving.load(e, bytes[0..size]) catch return -1;
    place.* = c.place;
    return c.index;
}

/// The packet clock, that of the end, and the order after the last packet; `set`: changes them instead.
pub export fn kafkasniff_streams_clock(e: *Engine, clocks: *[3]i64, set: bool) void {
    if (set) {
        e.clock, e.end_clock, e.end_order = clocks.*;
    } else clocks.* = .{ e.clock, e.end_clock, e.end_order };
}

/// Forgets a connection without a trace, by its place.
pub export fn kafkasniff_streams_drop(e: *Engine, place: u32) void {
    if (place < e.list.items.len) if (e.list.items[place]) |c| e.forget(c);
}

/// What each connection holds: its count; `at`: the address of the first (`types.Holding`), valid until the next call.
pub export fn kafkasniff_streams_holdings(e: *Engine, at: *u64) u64 {
    e.holdings.clearRetainingCapacity();
    for (e.list.items) |one| if (one) |c| e.holdings.append(e.gpa, .{
        .connection = c.index,
        .closed = @intFromBool(c.closed),
        .memory = heldBy(c),
        .clock = c.clock,
        .first_order = c.first_order,
        .waiting = waitingOf(c),
        .place = c.place,
    }) catch exhausted();
    at.* = @intFromPtr(e.holdings.items.ptr);
    return e.holdings.items.len;
}

/// Bytes of both streams that may still become frames.
fn waitingOf(c: *const Connection) i64 {
    if (c.closed or c.kafka.verdict == .not) return 0;
    const talk = c.kafka.talk orelse return 0;
    var total: i64 = 0;
    for (&talk.streams) |*stream| {
        if (stream.framer) |*framer| {
            total += framer.pending();
        } else if (stream.trial) |*framer| {
            total += framer.pending() + stream.frames_size;
        } else total += @intCast(stream.bytes.len());
    }
    return total;
}

fn heldBy(c: *const Connection) u64 {
    var total: u64 = 0;
    for (&c.streams) |*stream| total += @as(u64, @intCast(stream.held_bytes)) + 64 * stream.held.len();
    if (c.link) |link| total += links.PROBLEM_BYTES * link.remembered();
    const talk = c.kafka.talk orelse return total;
    for (&talk.streams) |*stream| {
        if (stream.framer) |*framer| total += framer.have.capacity;
        if (stream.trial) |*framer| total += framer.have.capacity;
        total += @as(u64, @intCast(stream.frames_size)) + stream.bytes.list.capacity;
        total += stream.pieces.list.capacity * @sizeOf(types.Piece) + stream.search.held();
    }
    const dialogue = &talk.dialogue;
    total += dialogue.ledger.slab.entries.capacity * 128;
    total += @intCast(dialogue.early.bytes);
    return total + dialogue.early.slab.entries.capacity * 256;
}

/// For connections by their places: the position in each stream before which no byte can become a part of a message.
pub export fn kafkasniff_streams_needed(e: *Engine, places: [*]const u32, count: u64, found: [*][2]i64) void {
    for (places[0..count], found[0..count]) |place, *positions| {
        positions.* = @splat(std.math.maxInt(i64));
        const c = if (place < e.list.items.len) e.list.items[place] orelse continue else continue;
        for (positions, 0..) |*position, d| position.* = kafkas.needed(c, d);
    }
}

/// The structures that Python shares (`stream_types.layout`).
pub export fn kafkasniff_streams_layout() [*:0]const u8 {
    return types.layout;
}
