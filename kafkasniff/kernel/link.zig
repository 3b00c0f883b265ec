//! The network of one TCP connection, judged by its packets: handshake, round trips, trouble. No payload is read.
//!
//! Each `Half` is one sender. One segment of its data at a time is timed until the receiver has acknowledged it, as
//! Jacobson's timer does, unless it was retransmitted meanwhile (Karn's algorithm; RFC 6298, section 3). This measures the
//! path from the capture point to the receiver and back, so the client's half shows the distance to the broker. Receivers
//! delay acknowledgements (RFC 9293, 3.8.6.3), so only low values are meaningful: each half keeps the decreasing record
//! of them. The receiver's system answers a handshake immediately, which makes it the best measure.
//!
//! A link exists from the first packet with a time on. Most connections of a scan have no data: what only data needs
//! (`Flow`), and what only trouble needs (`Trouble`), is allocated on first use.

const connections = @import("stream_connection.zig");
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const Flow = @import("link_flow.zig").Flow;
const std = @import("std");
const Trouble = @import("link_trouble.zig").Trouble;
const types = @import("stream_types.zig");

const ACK = 16;
const Connection = connections.Connection;
const FIN = 1;
const NO_TIME = types.NO_TIME;
const Packet = types.Packet;
const RST = 4;
const SYN = 2;

/// Segments per half that are remembered to distinguish a packet captured twice from a retransmission.
const RECENT = 8;
/// Memory of a problem whose time is remembered.
pub const PROBLEM_BYTES = 40;
/// Stands for the size of a SYN among them.
const SIZE_OF_SYN = std.math.maxInt(u32);

const Seen = struct { seq: u32, size: u32, ident: u32 };

/// Whether a sequence number is after another one.
pub fn isAfter(one: u32, other: u32) bool {
    return @as(i32, @bitCast(one -% other)) > 0;
}

/// Whether it is that one or after it.
pub fn reaches(one: u32, other: u32) bool {
    return @as(i32, @bitCast(one -% other)) >= 0;
}

/// One sender.
pub const Half = struct {
    packets: i64 = 0,
    /// The sequence number after all of its data so far.
    next: ?u32 = null,
    /// Everything before this number was acknowledged.
    acked: ?u32 = null,
    /// Its window is closed since then.
    closed_since: i64 = NO_TIME,
    recent: std.ArrayList(Seen) = .empty,
    /// The oldest of them, once there are as many as there may be.
    oldest: u8 = 0,
    flow: ?*Flow = null,
    trouble: ?*Trouble = null,

    fn flowOf(half: *Half, e: *Engine) *Flow {
        if (half.flow == null) {
            half.flow = e.gpa.create(Flow) catch exhausted();
            half.flow.?.* = .{};
        }
        return half.flow.?;
    }

    fn troubleOf(half: *Half, e: *Engine) *Trouble {
        if (half.trouble == null) {
            half.trouble = e.gpa.create(Trouble) catch exhausted();
            half.trouble.?.* = .{};
        }
        return half.trouble.?;
    }

    fn free(half: *Half, e: *Engine) void {
        half.recent.clearAndFree(e.gpa);
        if (half.flow) |flow| {
            flow.free(e.gpa);
            e.gpa.destroy(flow);
        }
        if (half.trouble) |trouble| {
            trouble.free(e.gpa);
            e.gpa.destroy(trouble);
        }
    }

    /// Notes a packet; true if the same one is among the last.
    fn isKnown(half: *Half, e: *Engine, seq: u32, size: u32, ident: u32) bool {
        const seen = &half.recent;
        for (seen.items) |one| if (one.seq == seq and one.size == size and one.ident == ident) return true;
        const one = Seen{ .seq = seq, .size = size, .ident = ident };
        if (seen.items.len == RECENT) {
            seen.items[half.oldest] = one;
            half.oldest = (half.oldest + 1) % RECENT;
            return false;
        }
        if (seen.items.len == seen.capacity) {
            seen.ensureTotalCapacityPrecise(e.gpa, if (seen.capacity == 0) 2 else RECENT) catch exhausted();
        }
        seen.appendAssumeCapacity(one);
        return false;
    }

    /// The receiver acknowledges.
    fn acknowledge(half: *Half, e: *Engine, time: i64, ack: u32) void {
        const flow = half.flow orelse {
            if (half.acked == null or isAfter(ack, half.acked.?)) half.acked = ack;
            return;
        };
        flow.arrived(e.gpa, time, ack);
        const before = half.acked orelse {
            half.acked = ack;
            return;
        };
        if (isAfter(ack, before)) {
            half.acked = ack;
            flow.acknowledged(e.gpa, time);
        } else if (flow.owed_since != NO_TIME) flow.heard += 1;
    }

    /// The lowest round trip to the receiver until then.
    fn roundTrip(half: *const Half, until: i64) i64 {
        return if (half.flow) |flow| flow.roundTrip(until) else NONE;
    }
};

/// A duration that is unknown.
const NONE = -1;

/// When the last response of a connection was complete, and when its last message or token was.
const Done = struct { response: i64 = NO_TIME, message: i64 = NO_TIME };

pub const Link = struct {
    first_time: i64,
    last_time: i64,
    /// The first SYN, if it was the first packet.
    asked: i64 = NO_TIME,
    /// The SYN that was answered: the last one before the SYN-ACK.
    asked_last: i64 = NO_TIME,
    /// The SYN-ACK, and the first packet of its receiver after it.
    answered: i64 = NO_TIME,
    acknowledged: i64 = NO_TIME,
    /// The first FIN, or RST of an answered connection.
    ended: i64 = NO_TIME,
    syns: u32 = 0,
    /// Direction of the first packet, of the SYN-ACK, and of that FIN or RST.
    first_by: u8,
    answered_by: u8 = 0,
    ended_by: u8 = 0,
    reset: bool = false,
    refused: bool = false,
    /// Once an exchange has ended.
    done: ?*Done = null,
    halves: [2]Half = .{ .{}, .{} },

    /// Problems of both ends whose times are remembered.
    pub fn remembered(link: *const Link) u64 {
        var total: u64 = 0;
        for (&link.halves) |*half| total += if (half.trouble) |trouble| trouble.remembered() else 0;
        return total;
    }

    pub fn free(link: *Link, e: *Engine) void {
        e.remembered -= link.remembered();
        if (link.done) |done| e.gpa.destroy(done);
        for (&link.halves) |*half| half.free(e);
    }

    fn doneOf(link: *Link, e: *Engine) *Done {
        if (link.done == null) {
            link.done = e.gpa.create(Done) catch exhausted();
            link.done.?.* = .{};
        }
        return link.done.?;
    }

    fn packet(link: *Link, e: *Engine, p: *const Packet) void {
        const half = &link.halves[p.dir];
        const peer = &link.halves[1 - p.dir];
        link.last_time = @max(link.last_time, p.time);
        half.packets += 1;
        if (p.flags & ACK != 0) peer.acknowledge(e, p.time, p.ack);
        var seq = p.seq;
        if (p.flags & (SYN | FIN | RST) != 0) {
            link.flagged(e, p);
            if (p.flags & SYN != 0) seq +%= 1;
        } else {
            if (p.window == 0 or half.closed_since != NO_TIME) windowed(e, half, peer, p);
            if (link.acknowledged == NO_TIME and link.answered != NO_TIME and p.dir != link.answered_by) {
                link.acknowledged = p.time;
            }
        }
        if (p.wire > 0) link.data(e, p, seq);
    }

    /// The window of a sender is closed, or was.
    fn windowed(e: *Engine, half: *Half, peer: *Half, p: *const Packet) void {
        const trouble = half.troubleOf(e);
        if (p.window != 0) {
            trouble.windowOpened(e, p.time, half.closed_since);
            half.closed_since = NO_TIME;
        } else if (half.closed_since == NO_TIME) {
            half.closed_since = p.time;
            trouble.windowClosed(e, p.time);
            // The other end has to wait, and its probes (RFC 9293, 3.8.6.1) do not count as retransmissions.
            if (peer.flow) |flow| flow.stopped();
        }
    }

    fn data(link: *Link, e: *Engine, p: *const Packet, seq: u32) void {
        const half = &link.halves[p.dir];
        const flow = half.flowOf(e);
        const size: u32 = @truncate(@as(u64, @intCast(p.wire)));
        const end = seq +% size;
        flow.spoken(p.time, end, size);
        if (half.next) |next| {
            if (!isAfter(end, next)) return link.repeated(e, p, seq, size);
            if (isAfter(seq, next)) flow.miss(e.gpa, link.missing(p, next, seq));
        }
        half.next = end;
        if (link.halves[1 - p.dir].flow) |other| other.flows(p.time);
        if (flow.owed_since == NO_TIME and half.acked != null) flow.owed_since = p.time;
        _ = half.isKnown(e, seq, size, p.ident);
        flow.sent(e.gpa, p.time, end, size);
    }

    /// The data before a segment.
    fn missing(link: *const Link, p: *const Packet, begin: u32, end: u32) Flow.Hole {
        return .{
            .begin = begin,
            .end = end,
            .since = p.time,
            .number = @truncate(p.ident >> 16),
            .heard = link.halves[1 - p.dir].packets,
        };
    }

    /// A segment that does not follow all others.
    fn repeated(link: *Link, e: *Engine, p: *const Packet, seq: u32, size: u32) void {
        const half = &link.halves[p.dir];
        const flow = half.flow.?;
        const end = seq +% size;
        // One packet, captured twice.
        if (half.isKnown(e, seq, size, p.ident)) return;
        if (flow.holeAt(seq, end)) |place| {
            half.troubleOf(e).cameLate(e, p.time, flow.holes.items[place].since);
            flow.cameLate(e.gpa, p, .{ .acked = half.acked, .heard = link.halves[1 - p.dir].packets }, place);
            return flow.fill(e.gpa, place, seq, end);
        }
        // A keep-alive (RFC 9293, 3.8.4).
        if (size == 1 and half.next != null and end == half.next.?) return;
        flow.timed_end = null;
        if (half.acked) |acked| if (flow.owed_since != NO_TIME and isAfter(end, acked)) flow.retried(p.time, size);
        half.troubleOf(e).retransmitted(e, p.time, flow.firstSent(end));
    }

    fn flagged(link: *Link, e: *Engine, p: *const Packet) void {
        const half = &link.halves[p.dir];
        if (p.flags & SYN != 0) {
            const copied = half.isKnown(e, p.seq, SIZE_OF_SYN, p.ident);
            if (half.next == null) half.next = p.seq +% 1;
            if (p.flags & ACK != 0) {
                if (link.answered == NO_TIME) link.answered, link.answered_by = .{ p.time, @intCast(p.dir) };
            } else if (!copied) {
                link.syns +|= 1;
                if (link.answered == NO_TIME) link.asked_last = p.time;
            }
        } else if (p.flags & RST != 0) {
            link.endBy(p, true);
            if (link.asked != NO_TIME and link.answered == NO_TIME and p.dir != link.first_by) link.refused = true;
        } else {
            if (half.next) |next| if (p.wire <= 0 and isAfter(p.seq, next)) {
                half.flowOf(e).miss(e.gpa, link.missing(p, next, p.seq));
            };
            link.endBy(p, false);
        }
    }

    /// One end closes or resets; the first one counts, since the other end only follows.
    fn endBy(link: *Link, p: *const Packet, reset: bool) void {
        if (link.ended != NO_TIME or (link.asked != NO_TIME and link.answered == NO_TIME)) return;
        link.ended, link.ended_by, link.reset = .{ p.time, @intCast(p.dir), reset };
    }

    // -- queries ------------------------------------------------------------------------------------------------------

    /// From the capture point to the broker and back, and to the client and back, by the handshake.
    fn handshake(link: *const Link) [2]i64 {
        const answered = link.answered;
        const asked, const confirmed = .{ link.asked_last, link.acknowledged };
        return .{
            if (answered != NO_TIME and asked != NO_TIME and asked <= answered) answered -| asked else NONE,
            if (answered != NO_TIME and confirmed != NO_TIME and answered <= confirmed) confirmed -| answered else NONE,
        };
    }

    /// The lowest round trips until then, likewise.
    fn roundTrips(link: *const Link, client: usize, until: i64) [2]i64 {
        const opening = link.handshake();
        const first = &link.halves[client];
        const other = &link.halves[1 - client];
        return .{ least(opening[0], first.roundTrip(until)), least(opening[1], other.roundTrip(until)) };
    }

    /// The direction of the client: by messages, handshake or `--port`, else the end with the higher port: clients use
    /// the upper range (RFC 6335, section 6).
    fn clientOf(link: *const Link, c: *const Connection) u8 {
        if (c.kafka.verdict == .kafka) return @intCast(c.kafka.client);
        if (link.asked != NO_TIME) return link.first_by;
        if (link.answered != NO_TIME) return 1 - link.answered_by;
        if (c.kafka.forced) return @intCast(c.kafka.client);
        if (c.key.port[0] != c.key.port[1]) return @intFromBool(c.key.port[1] > c.key.port[0]);
        return 1 - link.first_by;
    }
};

fn least(one: i64, other: i64) i64 {
    return if (one == NONE) other else if (other == NONE) one else @min(one, other);
}

/// Follows a packet of a connection.
pub inline fn follow(e: *Engine, c: *Connection, p: *const Packet) void {
    if (e.follows != .nothing and p.time != NO_TIME and !c.kafka.ignored) take(e, c, p);
}

fn take(e: *Engine, c: *Connection, p: *const Packet) void {
    if (c.link == null) {
        const link = e.gpa.create(Link) catch exhausted();
        link.* = .{ .first_time = p.time, .last_time = p.time, .first_by = @intCast(p.dir) };
        if (p.flags & (SYN | ACK) == SYN) link.asked, link.asked_last = .{ p.time, p.time };
        c.link = link;
    }
    c.link.?.packet(e, p);
}

/// Appends the row of a connection, with its stalls.
pub fn describe(e: *Engine, c: *const Connection) void {
    const link = c.link orelse return;
    const client = link.clientOf(c);
    var row = std.mem.zeroInit(types.LinkRow, .{
        .high = .{ c.key.high[client], c.key.high[1 - client] },
        .low = .{ c.key.low[client], c.key.low[1 - client] },
        .port = .{ c.key.port[client], c.key.port[1 - client] },
        .first_time = link.first_time,
        .last_time = link.last_time,
        .ended = link.ended,
        .ended_by = if (link.ended == NO_TIME) @as(i8, -1) else @as(i8, @intFromBool(link.ended_by != client)),
        .reset = @intFromBool(link.reset),
        .syns = link.syns,
        .spoke = NO_TIME,
        .round_trips = link.roundTrips(client, std.math.maxInt(i64)),
        .stalls = @as(u32, @intCast(e.stalls.items.len)),
    });
    row.opening = if (link.asked == NO_TIME) .unknown else if (link.answered != NO_TIME)
        .answered
    else if (link.refused) .refused else .unanswered;
    for ([_]u8{ client, 1 - client }, 0..) |d, i| {
        const half = &link.halves[d];
        row.packets[i] = half.packets;
        if (half.trouble) |trouble| {
            row.again[i], row.late[i], row.closed[i] = .{ trouble.again, trouble.late, trouble.closed };
            row.closed_ns[i] = trouble.closed_ns;
        }
        if (half.closed_since != NO_TIME) row.closed_ns[i] +|= @max(link.last_time -| half.closed_since, 0);
        const flow = half.flow orelse continue;
        if (i == 0) row.spoke = flow.spoke;
        row.data[i], row.lost[i] = .{ flow.data, flow.lost };
        row.trips[i], row.slow_trips[i] = .{ flow.trips, flow.slow_trips };
        row.slowest_trip = @max(row.slowest_trip, flow.slowest_trip);
        row.lost_longest = @max(row.lost_longest, flow.lost_longest);
        flow.putStalls(e, @intCast(i), .{ .acked = half.acked, .heard = link.halves[1 - d].packets }, link.last_time);
    }
    row.stalls_count = @as(u32, @intCast(e.stalls.items.len)) - row.stalls;
    e.link_rows.append(e.gpa, row) catch exhausted();
}

/// Times of an answered exchange: first and last byte of the request, and of the response.
pub const Span = struct { request_first: i64, request_done: i64, response_first: i64, response_done: i64 };

/// Appends what the network was like during an exchange that is over. `done`: its last message was complete; `span`: if it
/// was answered, and all of its times are known.
pub fn noteExchange(e: *Engine, c: *const Connection, ordinal: i64, done: i64, muted_until: i64, span: ?Span) void {
    if (e.follows != .exchanges) return;
    const link = c.link orelse return;
    const client: usize = @intCast(@max(c.kafka.client, 0));
    const last = link.doneOf(e);
    var found = std.mem.zeroInit(types.Network, .{
        .ordinal = ordinal,
        .connection = c.index,
        .handshake = link.handshake(),
        .round_trips = .{ NONE, NONE },
        .resent_at = NO_TIME,
        .before_done = last.response,
        .quiet_since = last.message,
        .muted_until = muted_until,
    });
    last.message = @max(last.message, done);
    if (span) |times| {
        last.response = @max(last.response, times.response_done);
        found.round_trips = link.roundTrips(client, times.response_done);
        for ([_]usize{ client, 1 - client }, 0..) |d, i| if (link.halves[d].trouble) |trouble| {
            const sum = trouble.between(times.request_first, times.response_done);
            found.again[i], found.late[i], found.late_ns[i] = .{ sum.again, sum.late, sum.late_ns };
            found.closed[i], found.closed_ns[i] = .{ sum.closed, sum.closed_ns };
            if (i == 0) found.resent_at = trouble.retransmittedAt(times.request_done, times.response_first);
        };
    }
    e.networks.append(e.gpa, found) catch exhausted();
}

/// A token of an authentication was complete.
pub fn noteToken(e: *Engine, c: *const Connection, time: i64) void {
    if (e.follows != .exchanges or time == NO_TIME) return;
    const link = c.link orelse return;
    link.doneOf(e).message = time;
}
