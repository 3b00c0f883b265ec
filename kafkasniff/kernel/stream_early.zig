//! Responses that wait for their requests, oldest first: the client's stream has a hole, or its packets come later.

const frames = @import("stream_frames.zig");
const lists = @import("stream_lists.zig");
const std = @import("std");

const Allocator = std.mem.Allocator;
const Frame = frames.Frame;
const NONE = lists.NONE;

/// Frames of either stream that a response without a request waits for.
const EARLY_FRAMES = 4;
const MAX_EARLY = 16_384;
/// As much as is held back after a hole.
const MAX_EARLY_BYTES = 16 << 20;

const Early = struct {
    /// In the order of their arrival.
    number: i64,
    /// The clock at which the wait ends.
    due: i64,
    correlation: i32,
    /// It does not answer a request with its id.
    refused: bool = false,
    /// Its bytes are its own.
    frame: Frame,
    next: u32 = NONE,
    previous: u32 = NONE,
    same_next: u32 = NONE,
    same_previous: u32 = NONE,
};
const Same = struct { id: i32, chain: lists.Chain("same_next", "same_previous") = .{} };

pub const EarlyResponses = struct {
    slab: lists.Slab(Early) = .{},
    waiting: lists.Chain("next", "previous") = .{},
    by_id: lists.Index(Same) = .{},
    bytes: i64 = 0,
    /// Frames that counted.
    clock: i64 = 0,
    next: i64 = 0,

    /// Makes the index of loaded responses.
    pub fn reindex(early: *EarlyResponses, gpa: Allocator, secret: u64) void {
        early.by_id.secret = secret;
        var place = early.waiting.first;
        while (place != NONE) : (place = early.slab.at(place).next) {
            early.by_id.get(gpa, early.slab.at(place).correlation).chain.append(&early.slab, place);
        }
    }

    pub fn count(early: *const EarlyResponses) u32 {
        return early.waiting.count;
    }

    /// Keeps a response, whose bytes belong to this from now on.
    pub fn add(early: *EarlyResponses, gpa: Allocator, correlation: i32, frame: Frame) void {
        const until = early.clock + EARLY_FRAMES + 1;
        const place = early.slab.add(gpa, .{ .number = early.next, .due = until, .correlation = correlation, .frame = frame });
        early.next += 1;
        early.waiting.append(&early.slab, place);
        early.by_id.get(gpa, correlation).chain.append(&early.slab, place);
        early.bytes += @intCast(frame.data.len);
    }

    /// Removes the oldest above the bounds.
    pub fn excess(early: *EarlyResponses, gpa: Allocator) ?Frame {
        if (early.waiting.count <= MAX_EARLY and early.bytes <= MAX_EARLY_BYTES) return null;
        return early.remove(gpa, early.waiting.first);
    }

    /// The response to a request that was complete at `time`, which still waits.
    ///
    /// Among several with this id it is the first that began after the request; if all began before it, the first, or
    /// none unless `may_precede`.
    pub fn find(early: *const EarlyResponses, id: i32, time: i64, may_precede: bool) ?u32 {
        const same = early.by_id.find(id) orelse return null;
        if (early.slab.at(same.chain.last).frame.first_time >= time) {
            // The skipped ones are removed with `before`, so that each is checked only once.
            var place = same.chain.first;
            while (early.slab.at(place).frame.first_time < time) place = early.slab.at(place).same_next;
            return place;
        }
        return if (may_precede) same.chain.first else null;
    }

    pub fn at(early: *const EarlyResponses, place: u32) *Early {
        return early.slab.at(place);
    }

    /// Removes the next one with its id that arrived before it: it answers no later request either.
    pub fn earlierOfId(early: *EarlyResponses, gpa: Allocator, place: u32) ?Frame {
        const before = early.by_id.find(early.slab.at(place).correlation).?.chain.first;
        return if (before == place) null else early.remove(gpa, before);
    }

    /// Removes the next one that arrived before it.
    pub fn earlier(early: *EarlyResponses, gpa: Allocator, place: u32) ?Frame {
        return if (early.waiting.first == place) null else early.remove(gpa, early.waiting.first);
    }

    /// Removes the oldest.
    pub fn pop(early: *EarlyResponses, gpa: Allocator) ?Frame {
        return if (early.waiting.count == 0) null else early.remove(gpa, early.waiting.first);
    }

    /// Removes the oldest, if it has waited long enough.
    pub fn due(early: *EarlyResponses, gpa: Allocator) ?Frame {
        if (early.waiting.count == 0 or early.slab.at(early.waiting.first).due > early.clock) return null;
        return early.remove(gpa, early.waiting.first);
    }

    /// The caller owns the bytes of the frame from now on.
    pub fn remove(early: *EarlyResponses, gpa: Allocator, place: u32) Frame {
        const one = early.slab.at(place).*;
        early.waiting.remove(&early.slab, place);
        const same = early.by_id.find(one.correlation).?;
        same.chain.remove(&early.slab, place);
        if (same.chain.count == 0) early.by_id.remove(gpa, one.correlation);
        early.bytes -= @intCast(one.frame.data.len);
        // A state has unused places, too.
        early.slab.at(place).frame.data = &.{};
        early.slab.remove(gpa, place);
        return one.frame;
    }

    pub fn free(early: *EarlyResponses, gpa: Allocator) void {
        while (early.pop(gpa)) |frame| gpa.free(frame.data);
        early.slab.free(gpa);
        early.by_id.free(gpa);
    }
};
