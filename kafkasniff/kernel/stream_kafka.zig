//! A connection as Kafka: the items of its two streams (segments, gaps, holes, the end), in capture order.
//!
//! While a boundary or the verdict is unknown, streams are examined segment by segment (`stream_search.zig`). What the
//! frames of streams in step mean is in `stream_dialogue.zig`.

const boundaries = @import("stream_boundaries.zig");
const Connection = @import("stream_connection.zig").Connection;
const Dialogue = @import("stream_dialogue.zig").Dialogue;
const dialogues = @import("stream_dialogue.zig");
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const frames = @import("stream_frames.zig");
const lists = @import("stream_lists.zig");
const search = @import("stream_search.zig");
const std = @import("std");
const types = @import("stream_types.zig");

const Frame = frames.Frame;
const Framer = frames.Framer;
const Gap = types.Gap;
const Packet = types.Packet;
const Segment = types.Segment;

/// Bytes of a search; if nothing was found by then, the older half is dropped.
const MAX_SEARCH = 16 << 20;
const HANDSHAKE = 22;
const APPLICATION_DATA = 23;

pub const Stream = struct {
    /// Cuts frames while the stream is in step.
    framer: ?Framer = null,
    /// Cuts frames provisionally: the stream has a gap before its first whole frame.
    trial: ?Framer = null,
    /// The frames of the trial; their bytes are their own.
    frames: std.ArrayList(Frame) = .empty,
    frames_size: i64 = 0,
    /// How many of them may be requests, as far as they were examined; `refused`: one cannot be.
    examined: u32 = 0,
    refused: bool = false,
    known_client: bool = false,
    /// In search: bytes, the segments that brought them, and the bytes before.
    bytes: lists.Queue(u8) = .{},
    pieces: lists.Queue(types.Piece) = .{},
    base: i64 = 0,
    /// Position in the stream of the first byte of the search.
    origin: i64 = 0,
    search: boundaries.Search = .{},
    /// The search starts at the first byte of the stream.
    aligned: bool = false,
    began: bool = false,
    hole: bool = false,
    /// It is known from its first byte on.
    from_start: bool = false,
    seen: i64 = 0,
    framed: i64 = 0,
    unread: i64 = 0,
    lost: i64 = 0,
    /// At the end: bytes of an incomplete frame.
    pending: i64 = 0,

    /// Frames of it may be present and not cut yet.
    pub fn isLate(stream: *const Stream) bool {
        return stream.hole or (stream.began and stream.framer == null);
    }

    /// `forced`: the user says that this is Kafka.
    pub fn collect(stream: *Stream, e: *Engine, one: Segment, forced: bool) void {
        const more: i64 = @intCast(one.data.len);
        const size: i64 = @intCast(stream.bytes.len());
        if (size == 0) stream.origin = one.at - stream.base;
        if (size + more > MAX_SEARCH) stream.keepFrom(stream.base + @max(@divFloor(size, 2), size + more - MAX_SEARCH));
        stream.search.add(e, stream, forced, stream.base + @as(i64, @intCast(stream.bytes.len())));
        stream.bytes.append(e.gpa, one.data);
        stream.pieces.push(e.gpa, .{
            .packet = one.packet,
            .time = one.time,
            .order = one.order,
            .released = one.released,
            .end = stream.base + @as(i64, @intCast(stream.bytes.len())),
        });
    }

    /// Nothing before this place is needed.
    pub fn keepFrom(stream: *Stream, from: i64) void {
        const n: usize = @intCast(@max(@min(from - stream.base, @as(i64, @intCast(stream.bytes.len()))), 0));
        if (n == 0) return;
        var last = stream.base;
        stream.bytes.drop(n);
        stream.base += @intCast(n);
        var whole: usize = 0;
        for (stream.pieces.items()) |piece| {
            if (piece.end > stream.base) break;
            last = piece.end;
            whole += 1;
        }
        stream.pieces.drop(whole);
        stream.search.clipped = stream.pieces.len() != 0 and last < stream.base;
        stream.search.keepFrom(stream.base);
    }

    /// Bytes of it so far, the missing ones included.
    pub fn end(stream: *const Stream) i64 {
        return stream.seen + stream.lost;
    }

    pub fn release(stream: *Stream, e: *Engine) void {
        stream.bytes.free(e.gpa);
        stream.pieces.free(e.gpa);
        stream.search.free(e);
        stream.base = 0;
        stream.aligned = false;
    }

    /// Its first byte follows.
    fn start(stream: *Stream) void {
        stream.aligned = true;
        stream.from_start = true;
    }

    /// No boundary is known any more.
    pub fn leave(stream: *Stream, e: *Engine) void {
        if (stream.framer) |*framer| framer.free(e);
        if (stream.trial) |*framer| framer.free(e);
        for (stream.frames.items) |one| e.retire(@constCast(one.data));
        stream.frames.clearAndFree(e.gpa);
        stream.framer = null;
        stream.trial = null;
    }
};

/// The packet that events belong to.
pub const Log = struct {
    order: i64 = 0,
    time: i64 = types.NO_TIME,
    packet: i64 = 0,

    /// Advances to this packet; the order never decreases.
    pub fn at(log: *Log, order: i64, time: i64, packet: i64) void {
        log.order = @max(log.order, order);
        log.time = time;
        log.packet = packet;
    }
};

/// What is known of the two streams, and of their messages.
pub const Talk = struct {
    streams: [2]Stream = .{ .{}, .{} },
    dialogue: Dialogue = .{},

    /// That of a connection, which has payload.
    pub fn of(e: *Engine, c: *Connection) *Talk {
        if (c.kafka.talk) |talk| return talk;
        const talk = e.gpa.create(Talk) catch exhausted();
        talk.* = .{};
        talk.dialogue.ledger.by_id.secret = e.secret[0];
        talk.dialogue.early.by_id.secret = e.secret[1];
        // Their SYNs came before.
        for (&talk.streams, &c.streams) |*stream, *tcp| if (tcp.isn != null) stream.start();
        c.kafka.talk = talk;
        return talk;
    }

    fn free(talk: *Talk, e: *Engine) void {
        for (&talk.streams) |*stream| {
            stream.leave(e);
            stream.release(e);
        }
        talk.dialogue.free(e);
        e.gpa.destroy(talk);
    }
};

pub const Kafka = struct {
    verdict: enum(u8) { undecided, kafka, not } = .undecided,
    /// Direction of the client's stream; -1: unknown.
    client: i8 = -1,
    /// The port says that it is Kafka.
    forced: bool = false,
    /// It is on none of the ports that are taken as Kafka.
    ignored: bool = false,
    closed: bool = false,
    retransmits: i64 = 0,
    log: Log = .{},
    /// Highest order of the problems found before the verdict.
    held_order: i64 = 0,
    /// From its first payload on: most connections of a scan have none.
    talk: ?*Talk = null,
    /// Size of a request above the limit, whose stream was in step until then.
    oversized: i64 = 0,
    /// Its items pass through TLS in Python first.
    wrapped: bool = false,
    looked: bool = false,

    pub fn free(kafka: *Kafka, e: *Engine) void {
        if (kafka.talk) |talk| talk.free(e);
        kafka.talk = null;
    }

    /// Whether all of both streams was captured so far.
    pub fn isWhole(kafka: *const Kafka) bool {
        for (&kafka.talk.?.streams) |*stream| if (!stream.from_start or stream.hole) return false;
        return !kafka.talk.?.dialogue.gapped;
    }

    /// Records whose frames may be present and not cut yet, because of a hole or a search.
    pub fn compare(kafka: *Kafka) void {
        if (kafka.client < 0) return;
        const client: usize = @intCast(kafka.client);
        const requests = &kafka.talk.?.streams[client];
        if (requests.isLate()) {
            kafka.talk.?.dialogue.requests = .behind;
        } else if (requests.began) kafka.talk.?.dialogue.requests = .here;
        kafka.talk.?.dialogue.ledger.responses_behind = kafka.talk.?.streams[1 - client].isLate();
    }
};

/// Passes frames to the dialogue.
pub const ToDialogue = struct {
    e: *Engine,
    c: *Connection,

    pub fn frame(to: ToDialogue, one: Frame) void {
        const size = 4 + @as(i64, @intCast(one.data.len));
        to.c.kafka.talk.?.streams[one.dir].framed += size;
        to.e.totals.decoded += size;
        dialogues.take(to.e, to.c, &one);
    }
};

/// An item that passes through TLS first. True: that is the case.
fn isWrapped(e: *Engine, c: *const Connection) bool {
    return c.kafka.wrapped and !e.inside;
}

pub fn segment(e: *Engine, c: *Connection, d: usize, given: Segment) void {
    var one = given;
    const kafka = &c.kafka;
    if (kafka.ignored) return;
    if (!kafka.looked) {
        // TLS begins with these bytes; as a length they are more than 365 million.
        kafka.looked = true;
        kafka.wrapped = one.data[0] == HANDSHAKE or one.data[0] == APPLICATION_DATA;
    }
    const talk = Talk.of(e, c);
    if (isWrapped(e, c)) return e.item(c, .segment, d, .{
        .order = one.order,
        .packet = one.packet,
        .time = one.time,
        .released = one.released,
        .data = one.data,
    });
    const stream = &talk.streams[d];
    one.at = stream.end();
    stream.seen += @intCast(one.data.len);
    e.totals.seen += @intCast(one.data.len);
    if (kafka.verdict == .not) return;
    stream.began = true;
    // Hot: a stream in step.
    if (stream.framer) |*framer| {
        if (kafka.verdict == .kafka) {
            const lost = framer.cut(e, d, one, ToDialogue{ .e = e, .c = c }) orelse return;
            kafka.log.at(one.order, one.released, one.packet);
            search.fallOut(e, c, d, one, lost);
            kafka.compare();
            return;
        }
    }
    const before = kafka.log;
    const was_kafka = kafka.verdict == .kafka;
    const framed = kafka.talk.?.streams[0].framed + kafka.talk.?.streams[1].framed;
    kafka.log.at(one.order, one.released, one.packet);
    if (stream.trial != null) {
        search.tryFrames(e, c, d, one);
    } else {
        stream.collect(e, one, kafka.forced);
        search.seek(e, c, d);
    }
    kafka.compare();
    // A piece of a frame is not an event, however the packets are batched.
    if (was_kafka and stream.framer != null and framed == kafka.talk.?.streams[0].framed + kafka.talk.?.streams[1].framed) {
        kafka.log = before;
    }
}

pub fn started(e: *Engine, c: *Connection, d: usize, is_client: bool) void {
    const kafka = &c.kafka;
    if (kafka.ignored) return;
    if (isWrapped(e, c)) return e.item(c, .started, d, .{ .order = c.first_order, .size = @intFromBool(is_client) });
    if (!kafka.forced and kafka.client < 0 and kafka.verdict == .undecided) {
        kafka.client = @intCast(if (is_client) d else 1 - d);
    }
    const talk = kafka.talk orelse return;
    const stream = &talk.streams[d];
    if (stream.framer == null) {
        if (stream.bytes.len() == 0) {
            stream.release(e);
            stream.aligned = true;
        }
        stream.from_start = !stream.began;
    }
}

pub fn gap(e: *Engine, c: *Connection, d: usize, missing: Gap) void {
    const kafka = &c.kafka;
    if (kafka.ignored) return;
    if (isWrapped(e, c)) return e.item(c, .gap, d, .{
        .order = missing.order,
        .packet = missing.packet,
        .time = missing.time,
        .released = missing.resumed,
        .size = missing.size,
        .flags = @intFromBool(missing.snapped) + 2 * @as(i64, @intFromBool(missing.unheard)),
    });
    const stream = &Talk.of(e, c).streams[d];
    stream.lost += missing.size;
    e.totals.lost += missing.size;
    kafka.talk.?.dialogue.gapped = true;
    if (kafka.verdict == .not) return;
    kafka.log.at(missing.order, missing.time, missing.packet);
    if (missing.unheard) {
        if (kafka.client < 0) return;
        if (d != kafka.client) kafka.talk.?.dialogue.one_sided = true;
        return e.tcpProblem(c, d, .{ .order = missing.order, .time = missing.time, .packet = missing.packet }, .one_direction, missing.size, false);
    }
    if (!missing.snapped) {
        e.tcpProblem(c, d, .{ .order = missing.order, .time = missing.time, .packet = missing.packet }, .gap, missing.size, false);
    }
    if (stream.framer == null) return search.gap(e, c, d, missing);
    if (!stream.framer.?.gap(e, d, missing, ToDialogue{ .e = e, .c = c })) {
        stream.leave(e);
        stream.release(e);
        if (d == kafka.client) kafka.talk.?.dialogue.loseRequests() else kafka.talk.?.dialogue.loseResponses(e, c, missing.resumed, true);
        kafka.compare();
    }
}

/// Frames of a segment that arrives after its gap was declared count if they certainly are messages.
pub fn late(e: *Engine, c: *Connection, d: usize, p: *const Packet) void {
    const kafka = &c.kafka;
    if (kafka.ignored) return;
    if (isWrapped(e, c)) return e.item(c, .late, d, .{ .order = p.order, .packet = p.packet, .time = p.time, .data = p.data });
    const stream = &Talk.of(e, c).streams[d];
    const size: i64 = @intCast(p.data.len);
    stream.seen += size;
    stream.lost -= size;
    e.totals.seen += size;
    e.totals.lost -= size;
    if (kafka.verdict != .kafka) return;
    if (!eachLate(e, c, d, p, false)) return;
    _ = eachLate(e, c, d, p, true);
}

/// Examines the frames of a late segment, or takes them. False: they are not whole messages.
fn eachLate(e: *Engine, c: *Connection, d: usize, p: *const Packet, takes: bool) bool {
    var at: usize = 0;
    while (at < p.data.len) {
        if (p.data.len - at < 4) return false;
        const size: i64 = std.mem.readInt(i32, p.data[at..][0..4], .big);
        if (size < 0 or size > e.max_frame or 4 + size > p.data.len - at) return false;
        const end = at + 4 + @as(usize, @intCast(size));
        const data = p.data[at + 4 .. end];
        if (takes) {
            (ToDialogue{ .e = e, .c = c }).frame(.{
                .order = p.order,
                .dir = d,
                .data = data,
                .at = -1,
                .size = size,
                .first_packet = p.packet,
                .last_packet = p.packet,
                .first_time = p.time,
                .time = p.time,
                .last_seen = p.packet,
            });
        } else if (!dialogues.isMessage(e, c, d, data)) return false;
        at = end;
    }
    return true;
}

/// The position of a stream before which no byte can become a part of a message that is not known yet.
pub fn needed(c: *const Connection, d: usize) i64 {
    const kafka = &c.kafka;
    if (c.closed or kafka.ignored or kafka.verdict == .not) return std.math.maxInt(i64);
    const talk = kafka.talk orelse return 0;
    const stream = &talk.streams[d];
    if (kafka.wrapped) return 0;
    var position = stream.end();
    if (stream.framer) |*framer| {
        if (framer.pending() != 0) position = framer.at;
    } else if (stream.trial) |*framer| {
        if (framer.pending() != 0) position = framer.at;
        if (stream.frames.items.len != 0) position = stream.frames.items[0].at;
    } else if (stream.bytes.len() != 0) position = stream.origin + stream.base;
    const early = &kafka.talk.?.dialogue.early;
    if (d != kafka.client and early.count() != 0) position = @min(position, early.at(early.waiting.first).frame.at);
    return position;
}

/// From here on segments of the stream are held back after a hole, or no longer.
pub fn hole(e: *Engine, c: *Connection, d: usize, order: i64, open: bool) void {
    if (c.kafka.ignored) return;
    if (isWrapped(e, c)) return e.item(c, .hole, d, .{ .order = order, .size = @intFromBool(open) });
    Talk.of(e, c).streams[d].hole = open;
    c.kafka.compare();
    if (!open) search.repeat(e, c, d, search.MAX_AGAIN);
}

pub fn retransmit(e: *Engine, c: *Connection, d: usize, order: i64) void {
    if (c.kafka.ignored) return;
    if (isWrapped(e, c)) return e.item(c, .retransmit, d, .{ .order = order });
    c.kafka.retransmits += 1;
    Talk.of(e, c).dialogue.retransmits +|= 1;
}

/// A layer in between cannot read the rest of the connection; `text`: why.
pub fn rejected(e: *Engine, c: *Connection, d: usize, place: Log, text: i64) void {
    const kafka = &c.kafka;
    if (kafka.verdict == .undecided) {
        _ = Talk.of(e, c);
        kafka.log.at(place.order, place.time, place.packet);
        search.judgeNotKafka(e, c, d, text);
    } else if (kafka.verdict == .kafka) e.textProblem(c, d, place, text, types.NO_BYTES);
}

/// The end of the connection (`Connection.end`).
pub fn closed(e: *Engine, c: *Connection) void {
    const kafka = &c.kafka;
    const end = &c.end.?;
    if (isWrapped(e, c)) return e.item(c, .closed, 0, .{
        .order = end.order,
        .packet = end.packet,
        .time = end.time,
        .released = c.ended_time,
        .size = @backingInt(end.reason),
        .flags = if (c.ended_by) |by| by else -1,
    });
    if (kafka.closed) return;
    kafka.closed = true;
    kafka.log.at(end.order, end.time, end.packet);
    if (kafka.talk != null) search.finish(e, c);
    var ending = std.mem.zeroInit(types.Ending, .{ .reason = end.reason });
    if (kafka.verdict == .kafka) closeDialogue(e, c, &ending);
    e.account(c, &ending);
    kafka.free(e);
}

fn closeDialogue(e: *Engine, c: *Connection, ending: *types.Ending) void {
    const kafka = &c.kafka;
    const client: usize = @intCast(kafka.client);
    for (&kafka.talk.?.streams, 0..) |*stream, d| {
        const rest: i64 = if (stream.framer) |framer| framer.pending() else @intCast(stream.bytes.len());
        if (stream.framer != null) stream.pending = rest;
        if (rest != 0) e.put(c, .{
            .kind = .cut,
            .direction = @intCast(d),
            .a = rest,
            .b = @intFromBool(stream.framer != null),
            .position = stream.end() - rest,
            .size = if (stream.framer) |*framer| framer.prefix() else 0,
            .have = @intCast(@min(rest, 4)),
        });
    }
    const requests = &kafka.talk.?.streams[client];
    const responses = &kafka.talk.?.streams[1 - client];
    ending.whole = @intFromBool(kafka.isWhole());
    ending.waiting = kafka.talk.?.dialogue.ledger.count();
    ending.in_step = @intFromBool(requests.framer != null);
    ending.announced = -1;
    if (requests.framer) |*framer| {
        ending.asking = @intFromBool(framer.pending() != 0);
        if (framer.announced()) |size| ending.announced = size;
    } else ending.announced = kafka.oversized;
    ending.answering = @intFromBool(if (responses.framer) |*framer| framer.pending() > 0 else responses.began);
    ending.asked_time = types.NO_TIME;
    if (kafka.talk.?.dialogue.ledger.first()) |first| {
        ending.asked_time = first.time;
        ending.asked_key = first.key;
        ending.asked_version = first.version;
    }
    const by_broker = c.ended_by != null and c.ended_by.? == 1 - client;
    const dialogue = &kafka.talk.?.dialogue;
    dialogue.close(e, c, c.end.?.reason, if (by_broker) c.ended_time else types.NO_TIME);
    ending.requests, ending.responses = .{ dialogue.asked, dialogue.answered };
    ending.served = @intFromBool(dialogue.served);
}
