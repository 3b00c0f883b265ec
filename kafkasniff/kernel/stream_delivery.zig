//! Bytes of a TCP connection's two streams: what is delivered, held back, repeated, or missing.
//!
//! Each stream has `next`, the position (sequence number, unwrapped) of the next expected byte. A segment that starts
//! there is delivered; one that starts before it is a retransmission, of which only new bytes count (the first arrival
//! of a byte wins); one that starts after it is held back, and the hole before it stays open until the missing bytes
//! arrive or the hole is declared a gap:
//!
//! - the peer has acknowledged bytes after the hole, so they were sent and received and are just not in the capture, and
//!   a grace of GRACE_PACKETS packets or GRACE_NS of the connection has passed (captures reorder packets too);
//! - or no packet of the peer was seen for ONE_SIDED_PACKETS packets (a capture of one direction has no
//!   acknowledgements);
//! - or more than MAX_HELD_BYTES or MAX_HELD_SEGMENTS are held back;
//! - or the connection ends.
//!
//! A segment that arrives later, with all its bytes in a gap, is passed on separately. All limits count packets and
//! packet times of this connection alone.

const Connection = @import("stream_connection.zig").Connection;
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const kafka = @import("stream_kafka.zig");
const lists = @import("stream_lists.zig");
const std = @import("std");
const types = @import("stream_types.zig");

const Packet = types.Packet;

pub const ACK = 16;
const SYN = 2;
/// Bytes of a stream that are remembered for packets that are captured again (`redact/stream_reading.py`).
const REPEATED = 128 << 10;
const GRACE_PACKETS = 32;
const GRACE_NS = 1_000_000_000;
const ONE_SIDED_PACKETS = 256;
pub const MAX_HELD_BYTES = 16 << 20;
const MAX_HELD_SEGMENTS = 16_384;
/// A segment further ahead is not of this connection, unless the following ones continue it.
pub const MAX_AHEAD = 64 << 20;
const AHEAD_SEGMENTS = 3;
/// Packets per stream remembered to distinguish a packet that was captured twice from a retransmission.
const RECENT = 16;
/// Gaps per stream for which late segments are still accepted.
const MAX_MISSING = 16;

/// A segment; `count` and `clock`: the connection's packet count and the packet clock when it was held back.
const Held = struct { start: i64, data: []u8, wire: i64, packet: i64, time: i64, count: i64 = 0, clock: i64 = 0 };
const Recent = struct { seq: u32 = 0, wire: u32 = 0, ident: u32 = 0 };
const Missing = struct { start: i64, end: i64 };

pub const Stream = struct {
    /// Position of the next byte; null before the first SYN or data.
    next: ?i64 = null,
    begin: i64 = 0,
    isn: ?u32 = null,
    /// Position of the FIN.
    fin: ?i64 = null,
    finished: bool = false,
    /// A packet of its sender was captured.
    heard: bool = false,
    /// Segments after holes, by position, without overlaps.
    held: lists.Queue(Held) = .{},
    held_bytes: i64 = 0,
    missing: std.ArrayList(Missing) = .empty,
    /// The connection's packet count when the first hole opened, or when a packet of the peer was seen since.
    opened: i64 = 0,
    /// The highest position that the peer acknowledged while a hole was open.
    acked: i64 = -1,
    ack: ?u32 = null,
    /// While nothing of the sender was captured: bytes that the peer acknowledged since its own first packet.
    passed: i64 = 0,
    ahead_next: i64 = -1,
    ahead_count: i64 = 0,
    repeated: i64 = 0,
    ignored: i64 = 0,
    /// From its first data on.
    recent: ?*[RECENT]Recent = null,
    recent_count: u32 = 0,
    /// It counts in the engine's sums.
    counts: bool = true,

    /// Unwraps a sequence number: the position nearest to `next` that has these low 32 bits (RFC 9293, 3.4).
    pub fn position(stream: *const Stream, seq: u32) i64 {
        const expected = stream.next orelse 0;
        return expected + @as(i32, @bitCast(seq -% low(expected)));
    }

    /// The position of a packet's payload, counted from the stream's first byte. `next`: position of the next byte before
    /// it was processed; REPEATED or more bytes before that its bytes are no longer known.
    pub fn offset(stream: *const Stream, p: *const Packet, next: ?i64) i64 {
        // Data on a SYN starts after it (RFC 7413).
        const at = stream.position(p.seq +% @intFromBool(p.flags & SYN != 0));
        if (next) |expected| if (expected - at >= REPEATED) return types.UNKNOWN;
        return at - stream.begin;
    }

    pub fn hear(stream: *Stream) void {
        stream.heard = true;
        stream.passed = 0;
    }

    pub fn acknowledge(stream: *Stream, ack: u32) void {
        if (!stream.heard) {
            if (stream.ack) |before| stream.passed += @as(i32, @bitCast(ack -% before));
        }
        stream.ack = ack;
    }

    inline fn push(stream: *Stream, e: *Engine, one: Recent) void {
        if (stream.recent == null) {
            stream.recent = e.gpa.create([RECENT]Recent) catch exhausted();
            stream.recent.?.* = @splat(.{});
        }
        stream.recent.?[stream.recent_count % RECENT] = one;
        stream.recent_count +%= 1;
        if (stream.recent_count == 0) stream.recent_count = RECENT;
    }

    fn remember(stream: *Stream, e: *Engine, one: Recent) bool {
        const recent: []const Recent = if (stream.recent) |every| every[0..@min(stream.recent_count, RECENT)] else &.{};
        const known = for (recent) |other| {
            if (other.seq == one.seq and other.wire == one.wire and other.ident == one.ident) break true;
        } else false;
        stream.push(e, one);
        return known;
    }

    pub fn endOfHeld(stream: *const Stream) ?i64 {
        const held = stream.held.items();
        if (held.len == 0) return null;
        return held[held.len - 1].start + held[held.len - 1].wire;
    }

    pub fn finish(stream: *Stream) void {
        const fin = stream.fin orelse return;
        if (stream.finished or stream.next == null or stream.next.? < fin) return;
        stream.finished = true;
        stream.next = fin + 1;
    }

    pub fn ignore(stream: *Stream, e: *Engine, count: usize) void {
        stream.ignored += @intCast(count);
        if (stream.counts) e.totals.ignored += @intCast(count);
    }

    pub fn free(stream: *Stream, e: *Engine) void {
        for (stream.held.items()) |held| e.gpa.free(held.data);
        stream.held.free(e.gpa);
        if (stream.recent) |recent| e.gpa.destroy(recent);
        stream.missing.clearAndFree(e.gpa);
    }
};

pub fn low(at: i64) u32 {
    return @truncate(@as(u64, @bitCast(at)));
}

/// The next segment of its stream, and nothing else to think about. Hot.
pub inline fn deliverPlain(e: *Engine, c: *Connection, p: *const Packet) bool {
    const stream = &c.streams[p.dir];
    if (p.wire != p.data.len or stream.fin != null) return false;
    const next = stream.next orelse return false;
    if (low(next) != p.seq) return false;
    stream.push(e, .{ .seq = p.seq, .wire = @intCast(p.wire), .ident = p.ident });
    stream.next = next + p.wire;
    kafka.segment(e, c, p.dir, .{
        .data = p.data,
        .packet = p.packet,
        .time = p.time,
        .order = p.order,
        .released = p.time,
    });
    return true;
}

/// Takes the data of a packet; `seq`: of its first byte.
pub fn take(e: *Engine, c: *Connection, p: *const Packet, seq: u32) void {
    const stream = &c.streams[p.dir];
    if (stream.next == null) {
        // The capture starts in the middle of the connection.
        stream.next = seq;
        stream.begin = seq;
    }
    const start = stream.position(seq);
    var wire = p.wire;
    var ahead = start - stream.next.?;
    const copied = stream.remember(e, .{ .seq = p.seq, .wire = @intCast(wire), .ident = p.ident });
    if (stream.fin) |fin| if (start + wire > fin) {
        stream.ignore(e, p.data.len);
        return c.problem(e, p, .data_after_fin, wire);
    };
    if (ahead + wire <= 0) {
        if (ahead < -MAX_AHEAD) {
            stream.ignore(e, p.data.len);
            return c.problem(e, p, .out_of_window, wire);
        }
        if (stream.missing.items.len != 0 and p.data.len == wire and findMissing(e, stream, start, start + wire)) {
            return kafka.late(e, c, p.dir, p);
        }
        repeat(e, stream, start, @intCast(p.data.len));
        // A single byte before the next one is a keep-alive (RFC 9293, 3.8.4).
        if (!copied and !(wire == 1 and ahead == -1)) kafka.retransmit(e, c, p.dir, p.order);
        return;
    }
    if (ahead > MAX_AHEAD) {
        if (!continuesAfterLoss(e, c, p, start)) return stream.ignore(e, p.data.len);
        ahead = 0;
    }
    var data = p.data;
    if (ahead > 0) {
        if (copied and isHeld(stream, start, wire)) return repeat(e, stream, start, @intCast(data.len));
        return hold(e, c, p, start);
    }
    if (ahead < 0) {
        const doubled: usize = @intCast(@min(-ahead, @as(i64, @intCast(data.len))));
        repeat(e, stream, start, @intCast(doubled));
        data = data[doubled..];
        wire += ahead;
    }
    const had_hole = stream.held.len() != 0;
    const fresh = Held{
        .start = stream.next.?,
        .data = @constCast(data),
        .wire = wire,
        .packet = p.packet,
        .time = p.time,
    };
    deliver(e, c, p.dir, p, fresh, false);
    if (had_hole and stream.held.len() == 0) kafka.hole(e, c, p.dir, p.order, false);
}

/// Whether a segment implausibly far ahead is the continuation of the stream after a large loss.
fn continuesAfterLoss(e: *Engine, c: *Connection, p: *const Packet, start: i64) bool {
    const stream = &c.streams[p.dir];
    stream.ahead_count = if (start == stream.ahead_next) stream.ahead_count + 1 else 1;
    stream.ahead_next = start + p.wire;
    if (stream.ahead_count < AHEAD_SEGMENTS) {
        if (stream.ahead_count == 1) c.problem(e, p, .out_of_window, p.wire);
        return false;
    }
    stream.ahead_count = 0;
    while (stream.held.len() != 0) giveUpHole(e, c, p.dir, p);
    kafka.gap(e, c, p.dir, .{
        .order = p.order,
        .size = start - stream.next.?,
        .packet = p.packet,
        .time = p.time,
        .resumed = p.time,
    });
    miss(e, stream, stream.next.?, start);
    stream.next = start;
    return true;
}

/// Counts bytes from `start` on that the stream already had; bytes before its first one were not part of it.
fn repeat(e: *Engine, stream: *Stream, start: i64, count: i64) void {
    const early = @min(@max(stream.begin - start, 0), count);
    stream.ignore(e, @intCast(early));
    stream.repeated += count - early;
    if (stream.counts) e.totals.repeated += count - early;
}

/// The number of held segments that start at this position or before.
fn upper(stream: *const Stream, start: i64) usize {
    return std.sort.partitionPoint(Held, stream.held.items(), start, startsUntil);
}

fn startsUntil(start: i64, held: Held) bool {
    return held.start <= start;
}

fn isHeld(stream: *const Stream, start: i64, wire: i64) bool {
    const i = upper(stream, start);
    if (i == 0) return false;
    const held = stream.held.items()[i - 1];
    return held.start + held.wire >= start + wire;
}

/// Keeps a segment that lies after a hole; where it overlaps with held segments, those win.
fn hold(e: *Engine, c: *Connection, p: *const Packet, from: i64) void {
    const stream = &c.streams[p.dir];
    if (stream.held.len() == 0) {
        stream.opened = c.packets;
        stream.acked = -1;
        kafka.hole(e, c, p.dir, p.order, true);
    }
    var start = from;
    var bytes = p.data;
    var wire = p.wire;
    var i = upper(stream, start);
    if (i != 0) {
        const before = stream.held.items()[i - 1];
        const cut = before.start + before.wire - start;
        if (cut > 0) {
            start += cut;
            bytes = skip(bytes, cut);
            wire -= cut;
        }
    }
    var fresh: i64 = 0;
    var kept: i64 = 0;
    while (wire > 0) {
        const room = if (i < stream.held.len()) stream.held.items()[i].start - start else wire;
        if (room > 0) {
            const span = @min(room, wire);
            const n = @min(bytes.len, @as(usize, @intCast(span)));
            stream.held.insert(e.gpa, i, .{
                .start = start,
                .data = e.gpa.dupe(u8, bytes[0..n]) catch exhausted(),
                .wire = span,
                .packet = p.packet,
                .time = p.time,
                .count = c.packets,
                .clock = p.clock,
            });
            kept += @intCast(n);
            i += 1;
            fresh += span;
        }
        const cut = room + (if (i < stream.held.len()) stream.held.items()[i].wire else 0);
        start += cut;
        bytes = skip(bytes, cut);
        wire -= cut;
        i += 1;
    }
    stream.held_bytes += kept;
    if (fresh < p.wire) {
        repeat(e, stream, from, @as(i64, @intCast(p.data.len)) - kept);
        kafka.retransmit(e, c, p.dir, p.order);
    }
    while (stream.held_bytes > MAX_HELD_BYTES or stream.held.len() > MAX_HELD_SEGMENTS) giveUpHole(e, c, p.dir, p);
}

fn skip(bytes: []const u8, n: i64) []const u8 {
    return bytes[@min(bytes.len, @as(usize, @intCast(@max(n, 0))))..];
}

/// Delivers a segment that starts at `next`, and the held ones that it reaches; bytes that were held first win.
///
/// They count as contiguous from `p` on, which filled the hole before them. After a gap, which nothing fills, each counts
/// from the latest packet on that brought bytes up to it.
fn deliver(e: *Engine, c: *Connection, d: usize, p: *const Packet, fresh: Held, after_gap: bool) void {
    const stream = &c.streams[d];
    if (stream.held.len() == 0) {
        // Usual: nothing is held back.
        stream.next = fresh.start + fresh.wire;
        const released = if (after_gap) fresh.time else p.time;
        passOn(e, c, d, p, fresh, released);
        return stream.finish();
    }
    var parts: std.ArrayList(Held) = .empty;
    defer parts.deinit(e.gpa);
    var doubled: i64 = @intCast(fresh.data.len);
    var at = fresh.start;
    const end = fresh.start + fresh.wire;
    var taken: usize = 0;
    const held = stream.held.items();
    while (taken < held.len and held[taken].start <= @max(at, end)) : (taken += 1) {
        const one = held[taken];
        stream.held_bytes -= @intCast(one.data.len);
        if (one.start > at) {
            const piece = part(fresh, at, one.start);
            parts.append(e.gpa, piece) catch exhausted();
            doubled -= @intCast(piece.data.len);
        }
        parts.append(e.gpa, one) catch exhausted();
        e.retire(one.data);
        at = one.start + one.wire;
    }
    if (at < end) {
        const piece = part(fresh, at, end);
        parts.append(e.gpa, piece) catch exhausted();
        doubled -= @intCast(piece.data.len);
        at = end;
    }
    repeat(e, stream, fresh.start, doubled);
    if (taken != 0) {
        stream.held.drop(taken);
        stream.opened = c.packets;
    }
    stream.next = at;
    var latest = fresh;
    for (parts.items) |one| {
        if (one.count > latest.count) latest = one;
        passOn(e, c, d, p, one, if (after_gap) latest.time else p.time);
    }
    stream.finish();
}

fn passOn(e: *Engine, c: *Connection, d: usize, p: *const Packet, one: Held, released: i64) void {
    if (one.data.len != 0) kafka.segment(e, c, d, .{
        .data = one.data,
        .packet = one.packet,
        .time = one.time,
        .order = p.order,
        .released = released,
    });
    const missing = one.wire - @as(i64, @intCast(one.data.len));
    if (missing != 0) kafka.gap(e, c, d, .{
        .order = p.order,
        .size = missing,
        .packet = one.packet,
        .time = p.time,
        .snapped = true,
        .resumed = released,
    });
}

fn part(held: Held, start: i64, end: i64) Held {
    const n = held.data.len;
    const a = @min(n, @as(usize, @intCast(start - held.start)));
    const b = @min(n, @as(usize, @intCast(end - held.start)));
    var found = held;
    found.start = start;
    found.data = held.data[a..b];
    found.wire = end - start;
    return found;
}

// -- holes ------------------------------------------------------------------------------------------------------------------

pub fn lookAtHoles(e: *Engine, c: *Connection, p: *const Packet) void {
    c.packets += 1;
    for (0..2) |d| while (c.streams[d].held.len() != 0 and isGap(c, d, p)) giveUpHole(e, c, d, p);
}

/// Whether the first hole of a stream has become a gap.
fn isGap(c: *Connection, d: usize, p: *const Packet) bool {
    const stream = &c.streams[d];
    const first = stream.held.items()[0];
    if (p.dir != d) {
        stream.opened = c.packets;
        if (p.flags & ACK != 0) stream.acked = @max(stream.acked, stream.position(p.ack));
    } else if (c.packets - stream.opened >= ONE_SIDED_PACKETS) return true;
    return stream.acked >= first.start and
        (c.packets - first.count >= GRACE_PACKETS or p.clock -| first.clock >= GRACE_NS);
}

/// The first hole of a stream becomes a gap; segments held back after it are delivered.
pub fn giveUpHole(e: *Engine, c: *Connection, d: usize, p: *const Packet) void {
    const stream = &c.streams[d];
    const first = stream.held.pop();
    stream.held_bytes -= @intCast(first.data.len);
    e.retire(first.data);
    kafka.gap(e, c, d, .{
        .order = p.order,
        .size = first.start - stream.next.?,
        .packet = p.packet,
        .time = p.time,
        .resumed = first.time,
    });
    miss(e, stream, stream.next.?, first.start);
    stream.next = first.start;
    deliver(e, c, d, p, first, true);
    if (stream.held.len() == 0) kafka.hole(e, c, d, p.order, false);
}

/// Records a gap: its bytes may still arrive.
fn miss(e: *Engine, stream: *Stream, start: i64, end: i64) void {
    if (start >= end) return;
    stream.missing.append(e.gpa, .{ .start = start, .end = end }) catch exhausted();
    if (stream.missing.items.len > MAX_MISSING) _ = stream.missing.orderedRemove(0);
}

/// Whether all of [start, end) lies within one gap, which it then fills.
fn findMissing(e: *Engine, stream: *Stream, start: i64, end: i64) bool {
    for (stream.missing.items, 0..) |one, i| {
        if (start < one.start or one.end < end) continue;
        var rest: [2]Missing = undefined;
        var n: usize = 0;
        if (one.start < start) {
            rest[n] = .{ .start = one.start, .end = start };
            n += 1;
        }
        if (end < one.end) {
            rest[n] = .{ .start = end, .end = one.end };
            n += 1;
        }
        stream.missing.replaceRange(e.gpa, i, 1, rest[0..n]) catch exhausted();
        while (stream.missing.items.len > MAX_MISSING) _ = stream.missing.orderedRemove(0);
        return true;
    }
    return false;
}
