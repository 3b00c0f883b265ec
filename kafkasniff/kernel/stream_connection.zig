//! One TCP connection: SYN, FIN, RST and the reuse of ports begin and end its two streams (`stream_delivery.zig`).
//!
//! At the end of the connection, bytes that the peer has acknowledged and that follow the last captured one are a gap,
//! too. If no packet of a stream's sender was captured, nothing else is known of the stream.

const delivery = @import("stream_delivery.zig");
const Engine = @import("streams.zig").Engine;
const kafkas = @import("stream_kafka.zig");
const links = @import("link.zig");
const std = @import("std");
const types = @import("stream_types.zig");

const ACK = delivery.ACK;
const FIN = 1;
const MAX_AHEAD = delivery.MAX_AHEAD;
const NONE = @import("stream_lists.zig").NONE;
const NO_TIME = types.NO_TIME;
const Packet = types.Packet;
const RST = 4;
const SYN = 2;
const Stream = delivery.Stream;

/// A RST that answers a late segment has the sequence number that this segment acknowledged (RFC 9293, 3.10.7.1): the
/// bytes after the end of its stream are at most those that may have been in flight.
const RESET_BEHIND = delivery.MAX_HELD_BYTES;
/// Problems of a kind that a connection reports.
const MAX_PROBLEMS = 20;

/// Endpoints, the lower one first; direction d is sent by endpoint d.
pub const Key = struct {
    high: [2]u64,
    low: [2]u64,
    port: [2]u16,

    pub fn eql(a: *const Key, b: *const Key) bool {
        return a.low[0] == b.low[0] and a.low[1] == b.low[1] and a.port[0] == b.port[0] and a.port[1] == b.port[1] and
            a.high[0] == b.high[0] and a.high[1] == b.high[1];
    }
};

pub const End = struct { order: i64, packet: i64, time: i64, reason: types.Reason, packets: i64 };

const Syn = struct { dir: usize, seq: u32, packet: i64, time: i64, clock: i64, ack: u32, flags: u8, wire: i64, ident: u32 };

pub const Connection = struct {
    /// What a state does not have, and its values then.
    pub const transient = .{ .index = 0, .place = NONE, .next = NONE, .deadline = 0 };

    key: Key,
    /// In the order of their beginnings.
    index: u32,
    /// Its place in the engine's list, and the next one in its row of the table.
    place: u32,
    next: u32,
    /// When to look at it again.
    deadline: i64 = 0,
    first_order: i64,
    first_packet: i64,
    first_time: i64,
    last_packet: i64,
    last_time: i64,
    /// The packet clock at its last packet.
    clock: i64,
    /// Packets of both directions up to its end.
    seen: i64 = 0,
    /// Packets that were handled one by one since a hole opened.
    packets: i64 = 0,
    closed: bool = false,
    /// It ends: what becomes known now may be at a packet of another connection.
    ending: bool = false,
    /// Direction and time of the first accepted FIN or RST.
    ended_by: ?u8 = null,
    ended_time: i64 = NO_TIME,
    /// Direction of the RST that closed it.
    reset_by: ?u8 = null,
    end: ?End = null,
    /// A SYN on an open connection: a new connection if the next packets fit it, else a forgery.
    pending_syn: ?Syn = null,
    problems: [@typeInfo(types.TcpProblem).@"enum".field_names.len]u8 = @splat(0),
    streams: [2]Stream = .{ .{}, .{} },
    kafka: kafkas.Kafka = .{},
    /// Its network, if that is followed.
    link: ?*links.Link = null,

    /// Reports a TCP problem at a packet; those of a kind have a bound.
    pub fn problem(c: *Connection, e: *Engine, p: *const Packet, kind: types.TcpProblem, number: i64) void {
        c.problemOf(e, p.dir, .{ .order = p.order, .time = p.time, .packet = p.packet }, kind, number);
    }

    fn problemOf(c: *Connection, e: *Engine, d: usize, place: kafkas.Log, kind: types.TcpProblem, number: i64) void {
        // Both kinds of RST count together.
        const counted = if (kind == .rst_unacknowledged) types.TcpProblem.rst_ignored else kind;
        const count = &c.problems[@backingInt(counted)];
        if (count.* >= MAX_PROBLEMS) return;
        count.* += 1;
        e.tcpProblem(c, d, place, kind, number, count.* == MAX_PROBLEMS);
    }

    fn synIgnored(c: *Connection, e: *Engine, order: i64) void {
        const syn = c.pending_syn.?;
        links.follow(e, c, &pendingPacket(c, order).?);
        c.pending_syn = null;
        // Reported now, after what was passed on meanwhile.
        c.problemOf(e, syn.dir, .{ .order = order, .time = syn.time, .packet = syn.packet }, .syn_ignored, 0);
    }

    pub fn free(c: *Connection, e: *Engine) void {
        if (c.link) |link| {
            link.free(e);
            e.gpa.destroy(link);
        }
        for (&c.streams) |*stream| stream.free(e);
        c.kafka.free(e);
    }
};

/// Nothing but the next segment of a stream, or an acknowledgement. Hot.
pub inline fn plain(e: *Engine, c: *Connection, p: *const Packet) bool {
    if (p.flags & (SYN | FIN | RST | ACK) != ACK or c.closed or c.pending_syn != null) return false;
    const stream = &c.streams[p.dir];
    const peer = &c.streams[1 - p.dir];
    if (stream.held.len() != 0 or peer.held.len() != 0) return false;
    if (p.wire != 0) {
        const next = stream.next orelse return false;
        if (p.wire != p.data.len or stream.fin != null or delivery.low(next) != p.seq) return false;
    }
    c.last_packet = p.packet;
    c.last_time = p.time;
    c.seen += 1;
    links.follow(e, c, p);
    if (!stream.heard) stream.hear();
    peer.acknowledge(p.ack);
    return p.wire == 0 or delivery.deliverPlain(e, c, p);
}

/// True: the packet belongs to a new connection between the same endpoints; this one is closed then.
pub fn handle(e: *Engine, c: *Connection, p: *const Packet) bool {
    const stream = &c.streams[p.dir];
    const peer = &c.streams[1 - p.dir];
    if (c.closed) {
        if (afterClose(e, c, p, stream)) return true;
        links.follow(e, c, p);
        return false;
    }
    c.last_packet = p.packet;
    c.last_time = p.time;
    if ((p.flags & SYN != 0 or c.pending_syn != null) and isReuse(e, c, p, stream)) {
        close(e, c, .reused, p);
        return true;
    }
    c.seen += 1;
    if (c.pending_syn == null or c.pending_syn.?.packet != p.packet) links.follow(e, c, p);
    if (!stream.heard) stream.hear();
    if (p.flags & RST != 0) {
        reset(e, c, p, stream);
        return false;
    }
    if (p.flags & ACK != 0) peer.acknowledge(p.ack);
    var seq = p.seq;
    if (p.flags & SYN != 0) {
        if (stream.isn == null) {
            if (stream.next != null) {
                stream.ignore(e, p.data.len);
                return false;
            }
            stream.isn = seq;
            stream.next = @as(i64, seq) + 1;
            stream.begin = stream.next.?;
            kafkas.started(e, c, p.dir, p.flags & ACK == 0);
        }
        // Data on a SYN starts after it (RFC 7413).
        seq +%= 1;
    }
    if (p.wire != 0) delivery.take(e, c, p, seq);
    if (p.flags & FIN != 0) finish(e, c, p, stream, seq);
    if (stream.held.len() != 0 or peer.held.len() != 0) delivery.lookAtHoles(e, c, p);
    if (stream.finished and peer.finished) close(e, c, .fin, p);
    return false;
}

/// The SYN that a new connection began with, as its first packet.
pub fn pendingPacket(c: *const Connection, order: i64) ?Packet {
    const syn = c.pending_syn orelse return null;
    return .{
        .dir = syn.dir,
        .order = order,
        .packet = syn.packet,
        .time = syn.time,
        .clock = syn.clock,
        .seq = syn.seq,
        .ack = syn.ack,
        .flags = syn.flags,
        // Its data, if any (TCP fast open), would have to be kept beyond the batch: it counts as truncated.
        .data = &.{},
        .wire = syn.wire,
        .ident = syn.ident,
    };
}

fn isReuse(e: *Engine, c: *Connection, p: *const Packet, stream: *Stream) bool {
    if (p.flags & SYN != 0) {
        // A retransmitted SYN, or the first of this stream.
        if (stream.isn != null and stream.isn.? == p.seq) return false;
        if (stream.next == null and stream.isn == null and c.pending_syn == null) return false;
        if (p.flags & ACK != 0) {
            // Without a pending SYN, it answers one that was not captured.
            const pending = c.pending_syn orelse return true;
            return pending.dir != p.dir and p.ack == pending.seq +% 1;
        }
        if (stream.fin != null or c.streams[1 - p.dir].fin != null) return true;
        // Only the last one may begin a connection.
        if (pendingPacket(c, p.order)) |syn| links.follow(e, c, &syn);
        c.pending_syn = .{
            .dir = p.dir,
            .seq = p.seq,
            .packet = p.packet,
            .time = p.time,
            .clock = p.clock,
            .ack = p.ack,
            .flags = p.flags,
            .wire = p.wire,
            .ident = p.ident,
        };
        return false;
    }
    const pending = c.pending_syn orelse return false;
    const expected = pending.seq +% 1;
    // Refused.
    if (pending.dir != p.dir) return p.flags & RST != 0 and p.flags & ACK != 0 and p.ack == expected;
    if (p.seq == expected) return true;
    c.synIgnored(e, p.order);
    return false;
}

/// Packets after the end: late copies are ignored, anything else starts a new connection.
///
/// Data that the peer of a RST had in flight, or sends before it knows of it, is ignored, too, and reported once.
fn afterClose(e: *Engine, c: *Connection, p: *const Packet, stream: *Stream) bool {
    if (p.flags & SYN != 0) return !(stream.isn != null and stream.isn.? == p.seq);
    if (p.flags & RST != 0 or p.wire == 0) return false;
    const next = stream.next orelse return true;
    const ahead = stream.position(p.seq) - next;
    if (-MAX_AHEAD < ahead and ahead < 0) return false;
    if (c.reset_by != null and c.reset_by.? == 1 - p.dir and 0 <= ahead and ahead <= RESET_BEHIND) {
        if (c.problems[@backingInt(types.TcpProblem.data_after_rst)] == 0) c.problem(e, p, .data_after_rst, p.wire);
        return false;
    }
    return true;
}

/// RST: accepted if its sequence number is the next one of its stream (RFC 5961, 3.2).
///
/// One that answers a late segment of the peer has the number that this segment acknowledged; the peer expects a later
/// one, and does not accept it either.
fn reset(e: *Engine, c: *Connection, p: *const Packet, stream: *Stream) void {
    // A reason as text (RFC 9293, 3.5.3).
    stream.ignore(e, p.data.len);
    const peer = &c.streams[1 - p.dir];
    const next = stream.next orelse {
        // A refused or half-captured connection: the RST must acknowledge the peer's data.
        if (peer.next == null or p.flags & ACK == 0 or p.ack == delivery.low(peer.next.?)) return endBy(e, c, p);
        const at = peer.position(p.ack);
        if (@max(peer.begin, peer.next.? - RESET_BEHIND) <= at and at <= peer.next.?) return;
        return c.problem(e, p, .rst_unacknowledged, at - peer.next.?);
    };
    const at = stream.position(p.seq);
    const end = @max(next, stream.endOfHeld() orelse 0, stream.fin orelse 0);
    // Linux sends the RST that answers data after close with the sequence number after its FIN.
    if (at == next or at == end or at == end + 1) return endBy(e, c, p);
    if (@max(stream.begin, end - RESET_BEHIND) <= at and at <= end) return;
    c.problem(e, p, .rst_ignored, at - end);
}

fn noteEnd(c: *Connection, p: *const Packet) void {
    if (c.ended_by != null) return;
    c.ended_by = @intCast(p.dir);
    c.ended_time = p.time;
}

fn endBy(e: *Engine, c: *Connection, p: *const Packet) void {
    noteEnd(c, p);
    c.reset_by = @intCast(p.dir);
    close(e, c, .rst, p);
}

fn finish(e: *Engine, c: *Connection, p: *const Packet, stream: *Stream, seq: u32) void {
    if (stream.next == null) {
        stream.next = seq;
        stream.begin = seq;
    }
    const at = stream.position(seq) + p.wire;
    const ahead = at - stream.next.?;
    if (stream.fin != null and at == stream.fin.?) return;
    // Held back data after it contradicts it: the first arrival wins.
    const contradicted = at < (stream.endOfHeld() orelse at);
    if (stream.finished or ahead < 0 or ahead > MAX_AHEAD or stream.fin != null or contradicted) {
        return c.problem(e, p, .fin_ignored, 0);
    }
    stream.fin = at;
    noteEnd(c, p);
    stream.finish();
}

/// Ends the connection at this packet: holes become gaps, nothing is held back any longer.
pub fn close(e: *Engine, c: *Connection, reason: types.Reason, p: *const Packet) void {
    if (c.closed) return;
    c.ending = true;
    for (&c.streams, 0..) |*stream, d| {
        while (stream.held.len() != 0) delivery.giveUpHole(e, c, d, p);
        if (stream.fin != null and stream.next != null and stream.next.? < stream.fin.?) {
            // Its end is in the capture, the bytes before that are not.
            kafkas.gap(e, c, d, gapAt(p, stream.fin.? - stream.next.?, false));
            stream.next = stream.fin;
        }
        const missing = acknowledgedUnseen(stream, &c.streams[1 - d]);
        if (missing != 0) {
            kafkas.gap(e, c, d, gapAt(p, missing, !stream.heard));
            if (stream.next) |next| stream.next = next + missing;
        }
    }
    if (c.pending_syn != null and reason != .reused) c.synIgnored(e, p.order);
    c.closed = true;
    // A SYN that turned out to begin another connection belongs to that one.
    const packets = c.seen - @intFromBool(c.pending_syn != null);
    c.end = .{ .order = p.order, .packet = p.packet, .time = p.time, .reason = reason, .packets = packets };
    kafkas.closed(e, c);
    for (&c.streams) |*stream| stream.missing.clearAndFree(e.gpa);
}

fn gapAt(p: *const Packet, size: i64, unheard: bool) types.Gap {
    return .{
        .order = p.order,
        .size = size,
        .packet = p.packet,
        .time = p.time,
        .resumed = p.time,
        .unheard = unheard,
    };
}

/// Bytes after the last captured one of a stream that its peer has acknowledged: they were sent and received.
///
/// A single one does not count: FIN takes one (RFC 9293, 3.4). If the peer sent nothing either, acknowledgements may be
/// for bytes that were in flight before the capture.
fn acknowledgedUnseen(stream: *const Stream, peer: *const Stream) i64 {
    var missing: i64 = 0;
    if (!stream.heard) {
        if (peer.next != null) missing = stream.passed - @intFromBool(peer.fin != null);
    } else if (stream.next != null and stream.fin == null and stream.ack != null) {
        missing = stream.position(stream.ack.?) - stream.next.?;
        if (missing > MAX_AHEAD) return 0;
    }
    return if (missing > 1) missing else 0;
}
