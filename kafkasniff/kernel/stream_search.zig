//! Recognizing Kafka, and finding where the frames of a stream begin.
//!
//! Acts on what `stream_boundaries.zig` finds in the collected bytes of a stream. A stream with a gap before its first
//! whole frame is cut provisionally: a trial.

const boundaries = @import("stream_boundaries.zig");
const Connection = @import("stream_connection.zig").Connection;
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const frames = @import("stream_frames.zig");
const kafkas = @import("stream_kafka.zig");
const lists = @import("stream_lists.zig");
const std = @import("std");
const types = @import("stream_types.zig");

const Frame = frames.Frame;
const Segment = types.Segment;
const Stream = kafkas.Stream;
const ToDialogue = kafkas.ToDialogue;

/// Bytes of the broker's stream that are searched again each time when requests arrive that were held back.
pub const MAX_AGAIN = 64 << 10;
const MAX_AT_END = 16 << 20;
const MAX_TRIAL_BYTES = 16 << 20;
const MAX_TRIAL_FRAMES = 16_384;
/// Larger length prefixes are text, which could be a secret.
const MAX_SIZE = 1 << 29;

/// Work to do for a stream, the last first. A list instead of recursion: a stream may fall out of step as often as its
/// bytes allow.
const Work = union(enum) {
    segments: Moved,
    /// The result of a search was processed: the stream is in step again, unless it fell out once more. `true`: the
    /// verdict came from it.
    entered: bool,
};
const WorkList = std.ArrayList(Work);

/// Collected bytes, taken out of their stream.
const Moved = struct {
    bytes: lists.Queue(u8),
    pieces: lists.Queue(types.Piece),
    /// Place of the next byte.
    at: i64,
    base: i64,
    origin: i64,

    fn of(stream: *Stream, from: i64) Moved {
        stream.keepFrom(from);
        const moved = Moved{ .bytes = stream.bytes, .pieces = stream.pieces, .at = stream.base, .base = stream.base, .origin = stream.origin };
        stream.bytes = .{};
        stream.pieces = .{};
        return moved;
    }

    fn next(moved: *Moved) ?Segment {
        if (moved.pieces.len() == 0) return null;
        const piece = moved.pieces.pop();
        const data = moved.bytes.items()[@intCast(moved.at - moved.base)..@intCast(piece.end - moved.base)];
        defer moved.at = piece.end;
        return .{
            .data = data,
            .packet = piece.packet,
            .time = piece.time,
            .order = piece.order,
            .released = piece.released,
            .at = moved.origin + moved.at,
        };
    }

    /// Frames may still refer to its bytes.
    fn retire(moved: *Moved, e: *Engine) void {
        e.retire(moved.bytes.list.allocatedSlice());
        moved.pieces.free(e.gpa);
    }
};

/// Passes frames to the trial of their stream.
const ToTrial = struct {
    e: *Engine,
    c: *Connection,

    pub fn frame(to: ToTrial, one: Frame) void {
        const stream = &to.c.kafka.talk.?.streams[one.dir];
        var kept = one;
        kept.data = to.e.gpa.dupe(u8, one.data) catch exhausted();
        stream.frames.append(to.e.gpa, kept) catch exhausted();
        stream.frames_size += 4 + @as(i64, @intCast(one.data.len));
    }
};

// -- streams that are not in step -----------------------------------------------------------------------------------------

/// A frame of impossible size: no boundary is known any more, and the rest of the segment is searched.
pub fn fallOut(e: *Engine, c: *Connection, d: usize, segment: Segment, lost: frames.Lost) void {
    var work: WorkList = .empty;
    defer work.deinit(e.gpa);
    lose(e, c, d, segment, lost, &work);
    workOff(e, c, d, &work);
}

fn lose(e: *Engine, c: *Connection, d: usize, segment: Segment, lost: frames.Lost, work: *WorkList) void {
    const kafka = &c.kafka;
    const stream = &kafka.talk.?.streams[d];
    stream.leave(e);
    if (d == kafka.client) kafka.talk.?.dialogue.loseRequests();
    const whole = kafka.isWhole();
    if (e.max_frame < lost.size and lost.size < MAX_SIZE and d == kafka.client and whole) kafka.oversized = lost.size;
    e.put(c, .{ .kind = .impossible, .direction = @intCast(d), .a = lost.size, .b = @intFromBool(whole) });
    if (lost.at == segment.data.len) return;
    var rest = segment;
    rest.data = segment.data[lost.at..];
    rest.at += @intCast(lost.at);
    stream.collect(e, rest, kafka.forced);
    seekOnce(e, c, d, false, work);
}

/// Cuts segments; if the stream falls out of step, searches the rest, segment by segment.
fn workOff(e: *Engine, c: *Connection, d: usize, work: *WorkList) void {
    const kafka = &c.kafka;
    const stream = &kafka.talk.?.streams[d];
    while (work.pop()) |todo| switch (todo) {
        .entered => |decided| {
            kafka.compare();
            if (decided) settle(e, c, 1 - d) else repeat(e, c, d, MAX_AGAIN);
            seekOnce(e, c, d, false, work);
        },
        .segments => |moved| {
            var rest = moved;
            const segment = rest.next() orelse {
                rest.retire(e);
                continue;
            };
            work.append(e.gpa, .{ .segments = rest }) catch exhausted();
            if (stream.framer) |*framer| {
                const lost = framer.cut(e, d, segment, ToDialogue{ .e = e, .c = c }) orelse continue;
                lose(e, c, d, segment, lost, work);
            } else {
                stream.collect(e, segment, kafka.forced);
                seekOnce(e, c, d, false, work);
            }
        },
    };
}

/// Checks whether the bytes of a stream that is not in step reveal its frame boundaries, and its role.
pub fn seek(e: *Engine, c: *Connection, d: usize) void {
    var work: WorkList = .empty;
    defer work.deinit(e.gpa);
    seekOnce(e, c, d, false, &work);
    workOff(e, c, d, &work);
}

/// The same, once; what it finds is appended to the work. `restart`: requests became known since the last time.
fn seekOnce(e: *Engine, c: *Connection, d: usize, restart: bool, work: *WorkList) void {
    const kafka = &c.kafka;
    const stream = &kafka.talk.?.streams[d];
    if (stream.framer != null or kafka.verdict == .not or stream.bytes.len() == 0) return;
    if (restart) boundaries.restartResponses(stream, -1);
    if (!boundaries.takePrologue(e, c, d)) return;
    if (boundaries.find(e, c, d)) |at| return enterStep(e, c, .{ .d = d, .at = at }, work);
    if (kafka.verdict == .undecided) {
        if (boundaries.findExchange(e, c)) |found| {
            // Then the stream of `d` is searched again, or is in step.
            return if (found.d == d) enterStep(e, c, found, work) else enter(e, c, found);
        }
        if (matchTrials(e, c)) return;
        if (boundaries.reasonAgainst(e, c, d, false)) |text| return judgeNotKafka(e, c, d, text);
    }
    boundaries.forget(e, c, d);
}

/// The stream is in step from this position on.
fn enter(e: *Engine, c: *Connection, found: boundaries.Place) void {
    var work: WorkList = .empty;
    defer work.deinit(e.gpa);
    enterStep(e, c, found, &work);
    workOff(e, c, found.d, &work);
}

fn enterStep(e: *Engine, c: *Connection, found: boundaries.Place, work: *WorkList) void {
    const kafka = &c.kafka;
    const d = found.d;
    const stream = &kafka.talk.?.streams[d];
    const undecided = kafka.verdict == .undecided;
    var gssapi = false;
    if (undecided) {
        const beginning = boundaries.beginning(e, c, found);
        gssapi = beginning.gssapi;
        judgeKafka(e, c, beginning.client);
    }
    const skipped = found.at - stream.search.prologue;
    if (skipped != 0) e.put(c, .{ .kind = .resync, .direction = @intCast(d), .a = skipped });
    const moved = Moved.of(stream, found.at);
    if (gssapi) kafka.talk.?.dialogue.beginGssapi(e, c);
    stream.release(e);
    stream.framer = .{};
    work.append(e.gpa, .{ .entered = undecided }) catch exhausted();
    work.append(e.gpa, .{ .segments = moved }) catch exhausted();
}

/// Searches the broker's stream again if the client's stream, of direction `d`, has progressed.
///
/// After a gap, bytes of the broker may arrive before the requests that they answer.
pub fn repeat(e: *Engine, c: *Connection, d: usize, most: usize) void {
    const kafka = &c.kafka;
    if (kafka.verdict != .kafka or d != kafka.client or !kafka.talk.?.dialogue.gapped) return;
    const responses = &kafka.talk.?.streams[1 - d];
    const size = responses.bytes.len();
    if (responses.framer != null or responses.trial != null or size == 0 or size > most) return;
    var work: WorkList = .empty;
    defer work.deinit(e.gpa);
    seekOnce(e, c, 1 - d, true, &work);
    workOff(e, c, 1 - d, &work);
}

/// At the end of the connection better evidence will not follow.
pub fn finish(e: *Engine, c: *Connection) void {
    const kafka = &c.kafka;
    if (kafka.client < 0) return;
    const client: usize = @intCast(kafka.client);
    const requests = &kafka.talk.?.streams[client];
    if (kafka.verdict == .undecided and boundaries.began(requests)) enter(e, c, .{ .d = client, .at = requests.base });
    if (kafka.verdict == .undecided) {
        if (boundaries.reasonAgainst(e, c, 1 - client, true)) |text| judgeNotKafka(e, c, 1 - client, text);
    }
    if (kafka.verdict != .kafka) return;
    repeat(e, c, client, MAX_AT_END);
    const responses = &kafka.talk.?.streams[1 - client];
    if (responses.framer != null or responses.trial != null or !kafka.talk.?.dialogue.ids_rise) return;
    if (boundaries.findLastResponse(e, c, 1 - client)) |at| enter(e, c, .{ .d = 1 - client, .at = at });
}

// -- the verdict ----------------------------------------------------------------------------------------------------------

fn judgeKafka(e: *Engine, c: *Connection, client: i8) void {
    const kafka = &c.kafka;
    kafka.verdict = .kafka;
    kafka.client = client;
    kafka.compare();
    e.put(c, .{ .kind = .verdict, .direction = @intCast(client), .a = 1 });
    kafka.log.order = @max(kafka.log.order, kafka.held_order);
}

/// The connection is not Kafka for the reason `text`; no more of it is read or kept.
pub fn judgeNotKafka(e: *Engine, c: *Connection, d: usize, text: i64) void {
    const kafka = &c.kafka;
    kafka.verdict = .not;
    for (&kafka.talk.?.streams) |*stream| {
        stream.leave(e);
        stream.release(e);
    }
    e.put(c, .{ .kind = .verdict, .direction = @intCast(d), .a = 0, .b = text });
}

/// The verdict is known: processes the bytes of the other stream that waited for it.
fn settle(e: *Engine, c: *Connection, d: usize) void {
    if (c.kafka.talk.?.streams[d].trial != null) judgeTrial(e, c, d) else seek(e, c, d);
}

// -- trials ---------------------------------------------------------------------------------------------------------------

/// Bytes are missing in a stream that is not in step.
pub fn gap(e: *Engine, c: *Connection, d: usize, missing: types.Gap) void {
    const kafka = &c.kafka;
    const stream = &kafka.talk.?.streams[d];
    if (stream.trial == null and stream.bytes.len() != 0 and boundaries.beginsFrame(e, c, d, missing)) {
        stream.trial = .{};
        stream.frames_size = 0;
        stream.examined = 0;
        stream.refused = false;
        var moved = Moved.of(stream, stream.base);
        defer moved.retire(e);
        while (moved.next()) |segment| {
            // A size that cannot be one ends the frames before the gap.
            if (stream.trial.?.cut(e, d, segment, ToTrial{ .e = e, .c = c }) != null) break;
        }
    }
    stream.release(e);
    if (stream.trial == null) return loseUnframed(e, c, d, missing.resumed);
    const in_step = stream.trial.?.gap(e, d, missing, ToTrial{ .e = e, .c = c });
    // Otherwise, if the trial is right, no message begins in the gap.
    if (!in_step) loseUnframed(e, c, d, missing.resumed);
    judgeTrial(e, c, d);
    if (!in_step) stream.leave(e);
    kafka.compare();
}

/// Bytes are missing, up to a packet of the time `resumed`, of a stream whose frames are unknown.
fn loseUnframed(e: *Engine, c: *Connection, d: usize, resumed: i64) void {
    if (d != c.kafka.client) c.kafka.talk.?.dialogue.loseResponses(e, c, resumed, false);
}

/// The stream is not in step as its trial says: messages may begin in its gaps.
fn dropTrial(e: *Engine, c: *Connection, d: usize) void {
    c.kafka.talk.?.streams[d].leave(e);
    loseUnframed(e, c, d, c.kafka.log.time);
}

/// Cuts a segment of a stream on trial.
pub fn tryFrames(e: *Engine, c: *Connection, d: usize, segment: Segment) void {
    const stream = &c.kafka.talk.?.streams[d];
    if (stream.trial.?.cut(e, d, segment, ToTrial{ .e = e, .c = c }) == null) return judgeTrial(e, c, d);
    dropTrial(e, c, d);
    stream.collect(e, segment, c.kafka.forced);
    seek(e, c, d);
}

/// Whether every frame of a trial has a plausible request header.
fn mayBeRequests(e: *Engine, c: *Connection, d: usize) bool {
    const stream = &c.kafka.talk.?.streams[d];
    const known = c.kafka.client >= 0;
    if (stream.known_client != known) {
        stream.known_client = known;
        stream.examined = 0;
        stream.refused = false;
    }
    while (!stream.refused and stream.examined < stream.frames.items.len) : (stream.examined += 1) {
        const frame = stream.frames.items[stream.examined];
        var q = e.question(c, .may_be_request, d);
        q.data = @intFromPtr(frame.data.ptr);
        q.size = frame.data.len;
        q.a = frame.size;
        q.b = @intFromBool(known);
        stream.refused = e.ask(&q) != .enter;
    }
    return !stream.refused;
}

fn judgeTrial(e: *Engine, c: *Connection, d: usize) void {
    const kafka = &c.kafka;
    const stream = &kafka.talk.?.streams[d];
    const count = stream.frames.items.len;
    const is_kafka = kafka.verdict == .kafka;
    if (kafka.client >= 0 and kafka.client != d) {
        if (is_kafka and count != 0) return endTrial(e, c, d);
    } else if (!mayBeRequests(e, c, d)) {
        return dropTrial(e, c, d);
    } else if (count >= @as(usize, if (is_kafka or kafka.forced) 1 else 2)) return endTrial(e, c, d);
    if (matchTrials(e, c)) return;
    if (stream.frames_size > MAX_TRIAL_BYTES or count > MAX_TRIAL_FRAMES) dropTrial(e, c, d);
}

const Id = struct { id: i32, order: i64 };

/// The first correlation id of a stream, and the order of the packet that completed its frame.
fn firstId(stream: *const Stream, of_request: bool) ?Id {
    const at: usize = if (of_request) 4 else 0;
    if (stream.trial != null) {
        if (stream.frames.items.len == 0) return null;
        const frame = stream.frames.items[0];
        if (frame.data.len < at + 4) return null;
        return .{ .id = std.mem.readInt(i32, frame.data[at..][0..4], .big), .order = frame.order };
    }
    const bytes = stream.bytes.items();
    if (of_request or !stream.aligned or stream.base != 0 or bytes.len < 8) return null;
    const size: i64 = std.mem.readInt(i32, bytes[0..4], .big);
    if (size <= 0 or size > bytes.len - 4) return null;
    const pieces = stream.pieces.items();
    const last = std.sort.partitionPoint(types.Piece, pieces, 4 + size, endsBefore);
    return .{ .id = std.mem.readInt(i32, bytes[4..8], .big), .order = pieces[last].order };
}

fn endsBefore(end: i64, piece: types.Piece) bool {
    return piece.end < end;
}

/// Recognizes a connection as Kafka if a truncated request is followed by a response with its id.
fn matchTrials(e: *Engine, c: *Connection) bool {
    const kafka = &c.kafka;
    if (kafka.verdict != .undecided) return false;
    for (&kafka.talk.?.streams, 0..) |*stream, d| {
        if (stream.trial == null or (kafka.client >= 0 and kafka.client != d)) continue;
        const asked = firstId(stream, true) orelse continue;
        const answered = firstId(&kafka.talk.?.streams[1 - d], false) orelse continue;
        if (asked.id == answered.id and asked.order <= answered.order and mayBeRequests(e, c, d)) {
            endTrial(e, c, d);
            return true;
        }
    }
    return false;
}

/// The stream is in step as its trial says.
fn endTrial(e: *Engine, c: *Connection, d: usize) void {
    const kafka = &c.kafka;
    const stream = &kafka.talk.?.streams[d];
    const framer = stream.trial.?;
    var taken = stream.frames;
    stream.trial = null;
    stream.frames = .empty;
    if (kafka.verdict == .undecided) judgeKafka(e, c, if (kafka.client < 0) @intCast(d) else kafka.client);
    const waits = kafka.talk.?.streams[1 - d].framer == null;
    stream.framer = framer;
    for (taken.items) |one| {
        (ToDialogue{ .e = e, .c = c }).frame(one);
        e.retire(@constCast(one.data));
    }
    taken.deinit(e.gpa);
    kafka.compare();
    if (waits) settle(e, c, 1 - d);
}
