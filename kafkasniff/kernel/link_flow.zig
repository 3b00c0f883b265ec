//! The data of one sender of a link: round trips, holes, and times in which data did not arrive (stalls).
//!
//! Two kinds of evidence of a stall, since a capture is made before or after the place where packets get lost:
//!
//! - *unacknowledged*: the sender retransmits, and nothing more is acknowledged. Receivers acknowledge within 0.5 s even
//!   if their programs hang (RFC 9293, 3.8.6.3); those with a closed window are excluded. If the receiver sends new data
//!   all the time, it gets acknowledgements, without which TCP stops at the first timeout: packets pass both ways.
//! - *hole*: later data (or the FIN) arrived, earlier data is missing, and the receiver does not acknowledge it either. If
//!   it does, only the capture lacks it. Behind an outage, a sender that had to wait begins with the one segment that it
//!   retransmits, and what it had sent after that is missing: then data was stuck since its last segment before.

const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const isAfter = @import("link.zig").isAfter;
const lists = @import("stream_lists.zig");
const reaches = @import("link.zig").reaches;
const std = @import("std");
const types = @import("stream_types.zig");

const Allocator = std.mem.Allocator;
const NO_TIME = types.NO_TIME;

/// Decreasing round trip times that are remembered; a real sender has some ten.
const MAX_RECORDS = 256;
/// Unacknowledged segments whose first transmission time is known, the latest.
const MAX_FLYING = 64;
/// Open holes that are remembered, the latest, to distinguish late segments from retransmissions.
const MAX_HOLES = 64;
/// Stalls that are remembered, the first.
const MAX_STALLS = 32;
/// Shorter ones are ordinary losses.
const MIN_STALL_NS = 500_000_000;
/// Kernels delay acknowledgements for 0.2 s at most: round trips that take longer had to wait on the way.
const SLOW_TRIP_NS = 250_000_000;
/// Fewer retransmissions do not prove that nothing arrives.
const MIN_RETRIES = 2;
/// A sender that paused for this long, and for this many times its usual pause, may have been cut off.
const MIN_PAUSE_NS = 1_000_000_000;
const UNUSUAL = 16;
/// Fewer segments of the size before the pause may be lost by chance.
const MIN_LOST = 2;
/// Segments that are not numbered (IPv6) and overtaken by others were lost if they are missing for this long.
const REORDERED_NS = 3_000_000;

const Record = struct { time: i64, taken: i64 };
const Flight = struct { end: u32, size: u32, time: i64 };

/// Facts of the half: what was acknowledged, and packets of the receiver so far.
const Receiver = struct { acked: ?u32, heard: i64 };

pub const Flow = struct {
    /// Missing data: its sequence numbers, and time and number (IPv4) of the segment that followed it; `heard`: packets of
    /// the receiver by then; `stuck`: when the sender paused, if the hole follows the first segment after that.
    pub const Hole = struct { begin: u32, end: u32, since: i64, number: u16, heard: i64, stuck: i64 = NO_TIME };
    /// A pause: the last segment before, the first after it, where this ends, and the largest segment before.
    const Pause = struct { since: i64 = NO_TIME, until: i64 = 0, end: u32 = 0, largest: u32 = 0 };
    const Stall = struct {
        since: i64,
        until: i64,
        kind: types.StallKind,
        retries: i64,
        retried: i64,
        size: i64,
        passed: i64,
        heard: i64,
        quiet: i64,
        over: bool,
    };

    /// Payload bytes, including retransmissions, and when it last sent some.
    data: i64 = 0,
    spoke: i64 = NO_TIME,
    /// Time between two segments: a moving average.
    usual: i64 = 0,
    pause: Pause = .{},
    /// Each new minimum of the round trip to the receiver.
    records: std.ArrayList(Record) = .empty,
    /// Measured round trips, those that were slow, and the slowest.
    trips: i64 = 0,
    slow_trips: i64 = 0,
    slowest_trip: i64 = 0,
    /// The segment whose round trip is measured.
    timed_end: ?u32 = null,
    timed_since: i64 = 0,
    flying: lists.Queue(Flight) = .{},
    holes: std.ArrayList(Hole) = .empty,
    /// Late segments that were sent again, rather than reordered: lost before the capture point; and how long one of them
    /// was missing at most.
    lost: i64 = 0,
    lost_longest: i64 = 0,
    /// Bytes of the largest segment that was captured in order, and of the largest that was acknowledged.
    largest: u32 = 0,
    passed: u32 = 0,
    /// Times in which its data did not arrive, and which are over.
    stalls: std.ArrayList(Stall) = .empty,
    /// When the oldest unacknowledged data was sent, or when the receiver last acknowledged some.
    owed_since: i64 = NO_TIME,
    /// Since then: retransmissions, the time of the last and bytes of the smallest, and packets of the receiver that
    /// acknowledged nothing more.
    retries: i64 = 0,
    retried_at: i64 = 0,
    retry_size: u32 = 0,
    heard: i64 = 0,
    /// Since then: the last new data of the receiver, if any, and the longest time without any before that.
    flowed_at: i64 = NO_TIME,
    quiet: i64 = 0,

    pub fn free(flow: *Flow, gpa: Allocator) void {
        flow.records.clearAndFree(gpa);
        flow.flying.free(gpa);
        flow.holes.clearAndFree(gpa);
        flow.stalls.clearAndFree(gpa);
    }

    /// The sender sends data up to a number.
    pub fn spoken(flow: *Flow, time: i64, end: u32, size: u32) void {
        flow.data += size;
        if (flow.spoke != NO_TIME) {
            const quiet = @max(time -| flow.spoke, 0);
            if (quiet >= MIN_PAUSE_NS and @divFloor(quiet, UNUSUAL) > flow.usual) {
                flow.pause = .{ .since = flow.spoke, .until = time, .end = end, .largest = flow.largest };
            }
            flow.usual += @divFloor(quiet - flow.usual, 8);
        }
        flow.spoke = time;
    }

    /// A segment that follows all others.
    pub fn sent(flow: *Flow, gpa: Allocator, time: i64, end: u32, size: u32) void {
        if (flow.timed_end == null) flow.timed_end, flow.timed_since = .{ end, time };
        flow.largest = @max(flow.largest, size);
        flow.flying.push(gpa, .{ .end = end, .size = size, .time = time });
        if (flow.flying.len() > MAX_FLYING) flow.flying.drop(1);
    }

    /// Everything before a number has arrived.
    pub fn arrived(flow: *Flow, gpa: Allocator, time: i64, ack: u32) void {
        if (flow.timed_end) |end| if (reaches(ack, end)) {
            flow.timed_end = null;
            flow.sample(gpa, time, time -| flow.timed_since);
        };
        for (flow.flying.items()) |flight| {
            if (!reaches(ack, flight.end)) break;
            flow.passed = @max(flow.passed, flight.size);
            flow.flying.drop(1);
        }
    }

    /// A round trip to the receiver was measured.
    fn sample(flow: *Flow, gpa: Allocator, time: i64, taken: i64) void {
        // Clocks of several captures disagree.
        if (taken < 0) return;
        flow.trips += 1;
        if (taken >= SLOW_TRIP_NS) flow.slow_trips += 1;
        flow.slowest_trip = @max(flow.slowest_trip, taken);
        const records = flow.records.items;
        if (records.len != 0 and taken >= records[records.len - 1].taken or records.len == MAX_RECORDS) return;
        flow.records.append(gpa, .{ .time = time, .taken = taken }) catch exhausted();
    }

    /// The lowest round trip until then; -1: there was none.
    pub fn roundTrip(flow: *const Flow, until: i64) i64 {
        const place = std.sort.upperBound(Record, flow.records.items, until, compared);
        return if (place == 0) -1 else flow.records.items[place - 1].taken;
    }

    fn compared(until: i64, one: Record) std.math.Order {
        return std.math.order(until, one.time);
    }

    /// When the data before a number was first sent, if that is known and it was not acknowledged since.
    pub fn firstSent(flow: *const Flow, end: u32) i64 {
        for (flow.flying.items()) |flight| if (reaches(flight.end, end)) return flight.time;
        return NO_TIME;
    }

    // -- data that does not arrive ------------------------------------------------------------------------------------

    /// The receiver acknowledged more.
    pub fn acknowledged(flow: *Flow, gpa: Allocator, time: i64) void {
        const since = flow.owed_since;
        if (flow.retries >= MIN_RETRIES and since != NO_TIME and time -| since >= MIN_STALL_NS) {
            flow.stalled(gpa, flow.unacknowledged(since, time, true));
        }
        flow.retries = 0;
        flow.owed_since = if (flow.flying.len() != 0) time else NO_TIME;
        flow.heard = 0;
        flow.flowed_at, flow.quiet = .{ NO_TIME, 0 };
    }

    /// The receiver has no room: the sender has to wait.
    pub fn stopped(flow: *Flow) void {
        flow.retries, flow.owed_since = .{ 0, NO_TIME };
        flow.flowed_at, flow.quiet = .{ NO_TIME, 0 };
    }

    /// The receiver sends new data.
    pub fn flows(flow: *Flow, time: i64) void {
        if (flow.owed_since == NO_TIME) return;
        flow.quiet = flow.quietUntil(flow.owed_since, time);
        flow.flowed_at = time;
    }

    fn quietUntil(flow: *const Flow, since: i64, until: i64) i64 {
        return @max(flow.quiet, until -| @max(flow.flowed_at, since));
    }

    /// It retransmitted a segment that was not acknowledged.
    pub fn retried(flow: *Flow, time: i64, size: u32) void {
        flow.retry_size = if (flow.retries == 0) size else @min(size, flow.retry_size);
        flow.retries += 1;
        flow.retried_at = time;
    }

    fn unacknowledged(flow: *const Flow, since: i64, until: i64, over: bool) Stall {
        return .{
            .since = since,
            .until = until,
            .kind = .unacknowledged,
            .retries = flow.retries,
            .retried = flow.retried_at,
            .size = flow.retry_size,
            .passed = flow.passed,
            .heard = flow.heard,
            .quiet = flow.quietUntil(since, until),
            .over = over,
        };
    }

    fn stalled(flow: *Flow, gpa: Allocator, stall: Stall) void {
        if (flow.stalls.items.len < MAX_STALLS) flow.stalls.append(gpa, stall) catch exhausted();
    }

    // -- holes --------------------------------------------------------------------------------------------------------

    /// Data is missing before a segment.
    pub fn miss(flow: *Flow, gpa: Allocator, hole: Hole) void {
        if (flow.holes.items.len == MAX_HOLES) _ = flow.holes.orderedRemove(0);
        var found = hole;
        const pause = &flow.pause;
        const large = hole.end -% hole.begin > MIN_LOST * pause.largest;
        if (large and hole.begin == pause.end and hole.since -| pause.until < MIN_STALL_NS) found.stuck = pause.since;
        flow.holes.append(gpa, found) catch exhausted();
    }

    /// The hole that a segment fills, or a part of it.
    pub fn holeAt(flow: *const Flow, begin: u32, end: u32) ?usize {
        for (flow.holes.items, 0..) |*hole, i| if (isAfter(end, hole.begin) and isAfter(hole.end, begin)) return i;
        return null;
    }

    /// A segment came that fills a hole, or a part of it.
    pub fn cameLate(flow: *Flow, gpa: Allocator, p: *const types.Packet, receiver: Receiver, place: usize) void {
        const hole = &flow.holes.items[place];
        const missing = p.time -| hole.since;
        const number: u16 = @truncate(p.ident >> 16);
        // A segment that was only reordered has a lower number than the one that overtook it, if they are numbered.
        const ahead: i16 = @bitCast(number -% hole.number);
        if (ahead > 0 or (ahead == 0 and missing >= REORDERED_NS)) {
            flow.lost += 1;
            flow.lost_longest = @max(flow.lost_longest, missing);
            if (hole.stuck != NO_TIME and isMissing(hole, receiver)) {
                var stall = flow.stallOf(hole, receiver, hole.since, true);
                stall.since = hole.stuck;
                flow.stalled(gpa, stall);
                hole.stuck = NO_TIME;
            }
        }
        if (missing >= MIN_STALL_NS and isMissing(hole, receiver)) flow.stalled(gpa, flow.stallOf(hole, receiver, p.time, true));
    }

    /// What is left of the hole when a segment came.
    pub fn fill(flow: *Flow, gpa: Allocator, place: usize, begin: u32, end: u32) void {
        const hole = flow.holes.items[place];
        var rest: [2]Hole = undefined;
        var count: usize = 0;
        for ([_][2]u32{ .{ hole.begin, begin }, .{ end, hole.end } }) |part| if (isAfter(part[1], part[0])) {
            rest[count] = hole;
            rest[count].begin, rest[count].end = part;
            count += 1;
        };
        flow.holes.replaceRange(gpa, place, 1, rest[0..count]) catch exhausted();
        if (flow.holes.items.len > MAX_HOLES) _ = flow.holes.orderedRemove(0);
    }

    /// Whether the receiver lacks the data, too, according to what it sent afterwards.
    fn isMissing(hole: *const Hole, receiver: Receiver) bool {
        const acked = receiver.acked orelse return false;
        return receiver.heard > hole.heard and !isAfter(acked, hole.begin);
    }

    fn stallOf(flow: *const Flow, hole: *const Hole, receiver: Receiver, until: i64, over: bool) Stall {
        return .{
            .since = hole.since,
            .until = until,
            .kind = .hole,
            .retries = 0,
            .retried = NO_TIME,
            .size = hole.end -% hole.begin,
            .passed = flow.largest,
            .heard = receiver.heard - hole.heard,
            .quiet = @max(until -| hole.since, 0),
            .over = over,
        };
    }

    /// Appends its stalls to the engine's; `last`: time of the connection's last packet.
    pub fn putStalls(flow: *const Flow, e: *Engine, sender: u8, receiver: Receiver, last: i64) void {
        for (flow.stalls.items) |stall| put(e, sender, stall);
        const since = flow.owed_since;
        if (since != NO_TIME and flow.retries >= MIN_RETRIES and flow.retried_at -| since >= MIN_STALL_NS) {
            put(e, sender, flow.unacknowledged(since, flow.retried_at, false));
        }
        for (flow.holes.items) |*hole| if (isMissing(hole, receiver)) {
            return put(e, sender, flow.stallOf(hole, receiver, last, false));
        };
    }

    fn put(e: *Engine, sender: u8, stall: Stall) void {
        e.stalls.append(e.gpa, .{
            .since = stall.since,
            .until = stall.until,
            .retries = stall.retries,
            .retried = stall.retried,
            .size = stall.size,
            .passed = stall.passed,
            .heard = stall.heard,
            .quiet = stall.quiet,
            .sender = sender,
            .kind = stall.kind,
            .over = @intFromBool(stall.over),
        }) catch exhausted();
    }
};
