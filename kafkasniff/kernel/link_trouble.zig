//! The problems of one sender's packets in order of arrival, and what they add up to in any time span.
//!
//! All are counted; times are only remembered for queries about exchanges, within a bound for each sender and the engine's
//! budget for all of them.

const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const std = @import("std");
const types = @import("stream_types.zig");

const NO_TIME = types.NO_TIME;

/// Retransmissions, late segments and closed windows of a sender whose times are remembered, each.
const MAX_TROUBLE = 65_536;
/// Lost segments within one exchange that are examined.
const MAX_LOOKED = 256;

const Times = std.ArrayList(i64);
/// A segment that was not acknowledged before its retransmission: the time of that, and of the first transmission.
const Lost = struct { time: i64, first: i64 };

pub const Sum = struct { again: i64 = 0, late: i64 = 0, late_ns: i64 = 0, closed: i64 = 0, closed_ns: i64 = 0 };

pub const Trouble = struct {
    /// Retransmitted segments, late segments, closed windows, and for how long windows were closed that were opened again.
    again: i64 = 0,
    late: i64 = 0,
    closed: i64 = 0,
    closed_ns: i64 = 0,
    again_at: Times = .empty,
    lost: std.ArrayList(Lost) = .empty,
    late_at: Times = .empty,
    /// For how long the first 1, 2 … of them were missing in total.
    late_sums: Times = .empty,
    closed_at: Times = .empty,
    /// The last window may still be closed.
    opened_at: Times = .empty,
    /// How long the first 1, 2 … of them were closed in total.
    closed_sums: Times = .empty,

    pub fn free(trouble: *Trouble, gpa: std.mem.Allocator) void {
        trouble.lost.clearAndFree(gpa);
        inline for (.{ "again_at", "late_at", "late_sums", "closed_at", "opened_at", "closed_sums" }) |name| {
            @field(trouble, name).clearAndFree(gpa);
        }
    }

    /// Problems that count towards the engine's budget.
    pub fn remembered(trouble: *const Trouble) u64 {
        return trouble.again_at.items.len + trouble.late_at.items.len + trouble.closed_at.items.len;
    }

    /// Remembers the time of a problem, if it may.
    fn remember(e: *Engine, times: *Times, time: i64) bool {
        if (times.items.len >= MAX_TROUBLE or e.remembered >= e.most_remembered) return false;
        e.remembered += 1;
        times.append(e.gpa, time) catch exhausted();
        return true;
    }

    // -- input --------------------------------------------------------------------------------------------------------

    /// A segment was retransmitted; `first`: when it was first sent, if it was not acknowledged since.
    pub fn retransmitted(trouble: *Trouble, e: *Engine, time: i64, first: i64) void {
        trouble.again += 1;
        if (!remember(e, &trouble.again_at, time) or first == NO_TIME) return;
        trouble.lost.append(e.gpa, .{ .time = time, .first = first }) catch exhausted();
    }

    /// A segment arrived that had been missing `since` then.
    pub fn cameLate(trouble: *Trouble, e: *Engine, time: i64, since: i64) void {
        trouble.late += 1;
        if (!remember(e, &trouble.late_at, time)) return;
        add(e, &trouble.late_sums, @max(time -| since, 0));
    }

    /// The sender announced a window of size 0.
    pub fn windowClosed(trouble: *Trouble, e: *Engine, time: i64) void {
        trouble.closed += 1;
        _ = remember(e, &trouble.closed_at, time);
    }

    /// It announced a window again, after one of size 0 `since` then.
    pub fn windowOpened(trouble: *Trouble, e: *Engine, time: i64, since: i64) void {
        const lasted = @max(time -| since, 0);
        trouble.closed_ns +|= lasted;
        if (trouble.opened_at.items.len >= trouble.closed_at.items.len) return;
        trouble.opened_at.append(e.gpa, time) catch exhausted();
        add(e, &trouble.closed_sums, lasted);
    }

    fn add(e: *Engine, sums: *Times, more: i64) void {
        sums.append(e.gpa, sumOf(sums, sums.items.len) +| more) catch exhausted();
    }

    fn sumOf(sums: *const Times, count: usize) i64 {
        return if (count == 0) 0 else sums.items[count - 1];
    }

    // -- queries ------------------------------------------------------------------------------------------------------

    /// When data sent by `sent` and lost after the capture point was last retransmitted by `until`.
    ///
    /// NO_TIME: none of it was lost in that time, as far as the capture shows.
    pub fn retransmittedAt(trouble: *const Trouble, sent: i64, until: i64) i64 {
        const lost = trouble.lost.items;
        var place = std.sort.upperBound(Lost, lost, until, beforeLost);
        const least = place -| MAX_LOOKED;
        while (place > least) {
            place -= 1;
            if (lost[place].time <= sent) return NO_TIME;
            if (lost[place].first <= sent) return lost[place].time;
        }
        return NO_TIME;
    }

    /// Problems from `first` to `last`, both included.
    pub fn between(trouble: *const Trouble, first: i64, last: i64) Sum {
        const again = upTo(&trouble.again_at, last) -| before(&trouble.again_at, first);
        const late_low = before(&trouble.late_at, first);
        const late_high = @max(upTo(&trouble.late_at, last), late_low);
        var sum = Sum{
            .again = @intCast(again),
            .late = @intCast(late_high - late_low),
            .late_ns = sumOf(&trouble.late_sums, late_high) -| sumOf(&trouble.late_sums, late_low),
        };
        // Windows reopened by `first` are over; those closed after `last` are not part of this span.
        const low, const high = .{ upTo(&trouble.opened_at, first), upTo(&trouble.closed_at, last) };
        if (low >= high) return sum;
        const closed, const opened = .{ trouble.closed_at.items, trouble.opened_at.items };
        const done = @min(high, opened.len);
        var lasted: i64 = sumOf(&trouble.closed_sums, @max(done, low)) -| sumOf(&trouble.closed_sums, low);
        if (done < high) {
            lasted +|= last -| closed[high - 1];
        } else if (opened[high - 1] > last) lasted -|= opened[high - 1] -| last;
        lasted -|= @max(first -| closed[low], 0);
        sum.closed = @intCast(high - low);
        sum.closed_ns = @max(lasted, 0);
        return sum;
    }

    fn upTo(times: *const Times, time: i64) usize {
        return std.sort.upperBound(i64, times.items, time, inOrder);
    }

    fn before(times: *const Times, time: i64) usize {
        return std.sort.lowerBound(i64, times.items, time, inOrder);
    }

    fn inOrder(one: i64, other: i64) std.math.Order {
        return std.math.order(one, other);
    }

    fn beforeLost(until: i64, one: Lost) std.math.Order {
        return std.math.order(until, one.time);
    }
};
