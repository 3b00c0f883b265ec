//! The outstanding requests of a connection, oldest first.
//!
//! A broker answers in order, so a response nearly always answers the oldest request. The cost of a call does not depend
//! on the number of outstanding requests: each is processed once when a gap may have contained its response, and once
//! when it leaves.

const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const kept_requests = @import("stream_kept.zig");
const lists = @import("stream_lists.zig");
const std = @import("std");

const Allocator = std.mem.Allocator;
const Heap = lists.Heap;
const NONE = lists.NONE;

/// Clients send 5 to 1,000 requests ahead by default.
pub const MAX_OUTSTANDING = 65_536;
/// Requests with acks 0 that may still get a response.
pub const MAX_SILENT = 64;

pub const Pending = struct {
    /// What a state does not have, and its values then.
    pub const transient = .{ .message = NONE, .call = 0 };

    ordinal: i64,
    first_time: i64,
    time: i64,
    correlation: i32,
    key: i16,
    version: i16,
    /// In a handshake before raw tokens: 1 + the index of its mechanism's name (`Tokens.names`).
    mechanism: u8 = 0,
    /// The request was a regular message: its index there in call `call`.
    regular: bool = false,
    message: u32 = NONE,
    call: u32 = 0,
    /// A gap in the broker's stream may have contained the response.
    lost: bool = false,
    /// The response to a later request arrived before its own.
    passed: bool = false,
    /// A request that is answered in a later call: its row, and some of its bytes (`stream_kept.zig`).
    kept: ?[]u8 = null,
    next: u32 = NONE,
    previous: u32 = NONE,
    same_next: u32 = NONE,
    same_previous: u32 = NONE,
};

const Requests = lists.Chain("next", "previous");
/// Requests of one correlation id, and those of them whose response may have been in a gap.
const Same = struct {
    id: i32,
    chain: lists.Chain("same_next", "same_previous") = .{},
    lost: u32 = 0,
    lost_ordinals: Heap = .{},
};

pub const Answered = struct { pending: Pending, passes: bool };

pub const Ledger = struct {
    slab: lists.Slab(Pending) = .{},
    open: Requests = .{},
    /// Older than one that was answered: all of them are older than those in `open`.
    passed: Requests = .{},
    by_id: lists.Index(Same) = .{},
    silent: lists.Queue(Pending) = .{},
    lost: u32 = 0,
    lost_ordinals: Heap = .{},
    /// The last gap has processed requests up to this ordinal.
    judged: i64 = -1,
    /// Those that the gaps so far preceded, by their times.
    later: Heap = .{},
    /// Highest number of outstanding requests so far, while answers arrived in order.
    most: u32 = 1,
    /// A part of the broker's stream is not available.
    responses_behind: bool = false,

    pub fn count(ledger: *const Ledger) u32 {
        return ledger.open.count + ledger.passed.count;
    }

    pub fn first(ledger: *const Ledger) ?*Pending {
        const place = if (ledger.passed.first != NONE) ledger.passed.first else ledger.open.first;
        return if (place == NONE) null else ledger.slab.at(place);
    }

    fn same(ledger: *const Ledger, id: i32) ?*Same {
        return ledger.by_id.find(id);
    }

    fn oldestPlace(ledger: *const Ledger, id: i32) ?u32 {
        // Usual: it is the oldest of all.
        if (ledger.passed.count == 0 and ledger.open.count != 0 and ledger.slab.at(ledger.open.first).correlation == id) {
            return ledger.open.first;
        }
        return (ledger.same(id) orelse return null).chain.first;
    }

    pub fn oldest(ledger: *const Ledger, id: i32) ?*Pending {
        return ledger.slab.at(ledger.oldestPlace(id) orelse return null);
    }

    pub fn hasSameId(ledger: *const Ledger, id: i32) bool {
        return (ledger.same(id) orelse return false).chain.count > 1;
    }

    /// Returns the request that leaves if the bound is reached.
    pub fn add(ledger: *Ledger, gpa: Allocator, pending: Pending) ?Pending {
        const place = ledger.slab.add(gpa, pending);
        ledger.open.append(&ledger.slab, place);
        ledger.by_id.get(gpa, pending.correlation).chain.append(&ledger.slab, place);
        if (ledger.count() <= MAX_OUTSTANDING) return null;
        return ledger.remove(gpa, if (ledger.passed.first != NONE) ledger.passed.first else ledger.open.first);
    }

    pub fn keptBytes(ledger: *const Ledger) u64 {
        var total: u64 = 0;
        for ([_]u32{ ledger.passed.first, ledger.open.first }) |first_place| {
            var place = first_place;
            while (place != NONE) : (place = ledger.slab.at(place).next) {
                if (ledger.slab.at(place).kept) |bytes| total += bytes.len;
            }
        }
        for (ledger.silent.items()) |pending| if (pending.kept) |bytes| {
            total += bytes.len;
        };
        return total;
    }

    /// Makes the index of loaded requests.
    pub fn reindex(ledger: *Ledger, gpa: Allocator, secret: u64) void {
        ledger.by_id.secret = secret;
        for ([_]u32{ ledger.passed.first, ledger.open.first }) |first_place| {
            var place = first_place;
            while (place != NONE) : (place = ledger.slab.at(place).next) {
                ledger.by_id.get(gpa, ledger.slab.at(place).correlation).chain.append(&ledger.slab, place);
                if (ledger.slab.at(place).lost) ledger.noteLostOfId(gpa, place);
            }
        }
    }

    /// Removes the request that a response with this id answers. `passes`: older ones are still open.
    pub fn answer(ledger: *Ledger, gpa: Allocator, id: i32) ?Answered {
        const place = ledger.oldestPlace(id) orelse return null;
        const passes = !ledger.slab.at(place).passed and ledger.open.first != place;
        if (ledger.open.count > ledger.most and !(passes or ledger.responses_behind)) ledger.most = ledger.open.count;
        return .{ .pending = ledger.remove(gpa, place), .passes = passes };
    }

    /// The same among the requests that expect no response.
    pub fn answerSilent(ledger: *Ledger, id: i32) ?Pending {
        for (ledger.silent.items(), 0..) |*pending, i| {
            if (pending.correlation == id) return ledger.silent.removeAt(i);
        }
        return null;
    }

    /// Removes the next request older than this one whose response may have been in a gap: now it certainly was.
    pub fn olderLost(ledger: *Ledger, gpa: Allocator, ordinal: i64) ?Pending {
        while (ledger.lost != 0) {
            const top = ledger.lost_ordinals.top() orelse return null;
            if (top.ordinal >= ordinal) return null;
            _ = ledger.lost_ordinals.pop();
            if (ledger.isValid(top.ordinal, top.place)) return ledger.remove(gpa, top.place);
        }
        return null;
    }

    /// Marks requests older than an answered one; returns whether any of them was not marked before.
    pub fn passOver(ledger: *Ledger, ordinal: i64) bool {
        var fresh = false;
        while (ledger.open.first != NONE and ledger.slab.at(ledger.open.first).ordinal < ordinal) {
            const place = ledger.open.first;
            ledger.open.remove(&ledger.slab, place);
            ledger.slab.at(place).passed = true;
            ledger.passed.append(&ledger.slab, place);
            fresh = true;
        }
        return fresh;
    }

    /// Bytes of the broker's stream are missing: any response outstanding by then may have been in them.
    ///
    /// `resumed`: time of the packet after them. A request that was sent later has its response after them, too.
    /// `has_head`: they contain the beginning of the next response.
    /// Removes the requests whose response was certainly in them, even if repeating ids do not show it: the oldest, if
    /// its head is; and if more requests wait than this client ever had in flight, the oldest of those.
    pub fn gap(ledger: *Ledger, gpa: Allocator, resumed: i64, has_head: bool) std.ArrayList(Pending) {
        var touched: std.ArrayList(i32) = .empty;
        defer touched.deinit(gpa);
        ledger.lose(gpa, resumed, &touched);
        var head: ?i32 = null;
        if (has_head and ledger.open.first != NONE) {
            const id = ledger.slab.at(ledger.open.first).correlation;
            if (ledger.same(id).?.chain.first == ledger.open.first) {
                head = id;
                touched.append(gpa, id) catch exhausted();
            }
        }
        var removed: std.ArrayList(Pending) = .empty;
        std.mem.sortUnstable(i32, touched.items, {}, std.sort.asc(i32));
        for (touched.items, 0..) |id, i| {
            if (i != 0 and touched.items[i - 1] == id) continue;
            const of_id = ledger.same(id) orelse continue;
            if (of_id.lost == 0 or of_id.chain.count < 2) continue;
            const at_head = head != null and head.? == id;
            var n = @min(@max(of_id.lost -| ledger.most, @intFromBool(at_head)), of_id.lost);
            while (n > 0) : (n -= 1) removed.append(gpa, ledger.removeFirstLost(gpa, id)) catch exhausted();
        }
        std.mem.sortUnstable(Pending, removed.items, {}, older);
        return removed;
    }

    fn older(_: void, a: Pending, b: Pending) bool {
        return a.ordinal < b.ordinal;
    }

    /// Marks requests up to this time as possibly lost responses.
    fn lose(ledger: *Ledger, gpa: Allocator, resumed: i64, touched: *std.ArrayList(i32)) void {
        const judged = ledger.judged;
        for ([_]*Requests{ &ledger.open, &ledger.passed }) |chain| {
            var place = chain.last;
            while (place != NONE and ledger.slab.at(place).ordinal > judged) : (place = ledger.slab.at(place).previous) {
                const pending = ledger.slab.at(place);
                ledger.judged = @max(ledger.judged, pending.ordinal);
                if (pending.time <= resumed) {
                    ledger.noteLost(gpa, place, touched);
                } else ledger.later.push(gpa, pending.time, pending.ordinal, place);
            }
        }
        while (ledger.later.top()) |top| {
            if (top.key > resumed) break;
            _ = ledger.later.pop();
            if (ledger.isValid(top.ordinal, top.place)) ledger.noteLost(gpa, top.place, touched);
        }
        ledger.later.trim(ledger.count(), ledger);
        ledger.lost_ordinals.trim(ledger.lost, ledger);
    }

    fn noteLost(ledger: *Ledger, gpa: Allocator, place: u32, touched: *std.ArrayList(i32)) void {
        const pending = ledger.slab.at(place);
        pending.lost = true;
        ledger.lost += 1;
        ledger.lost_ordinals.push(gpa, pending.ordinal, pending.ordinal, place);
        touched.append(gpa, pending.correlation) catch exhausted();
        ledger.noteLostOfId(gpa, place);
    }

    fn noteLostOfId(ledger: *Ledger, gpa: Allocator, place: u32) void {
        const pending = ledger.slab.at(place);
        const of_id = ledger.same(pending.correlation).?;
        of_id.lost += 1;
        of_id.lost_ordinals.push(gpa, pending.ordinal, pending.ordinal, place);
        of_id.lost_ordinals.trim(of_id.lost, ledger);
    }

    pub fn isValid(ledger: *const Ledger, ordinal: i64, place: u32) bool {
        return place < ledger.slab.entries.items.len and ledger.slab.at(place).ordinal == ordinal;
    }

    fn removeFirstLost(ledger: *Ledger, gpa: Allocator, id: i32) Pending {
        const of_id = ledger.same(id).?;
        while (true) {
            const top = of_id.lost_ordinals.pop();
            if (ledger.isValid(top.ordinal, top.place)) return ledger.remove(gpa, top.place);
        }
    }

    fn remove(ledger: *Ledger, gpa: Allocator, place: u32) Pending {
        const pending = ledger.slab.at(place).*;
        (if (pending.passed) &ledger.passed else &ledger.open).remove(&ledger.slab, place);
        const of_id = ledger.same(pending.correlation).?;
        of_id.chain.remove(&ledger.slab, place);
        if (pending.lost) {
            ledger.lost -= 1;
            if (ledger.lost == 0) ledger.lost_ordinals.free(gpa);
            of_id.lost -= 1;
            if (of_id.lost == 0) of_id.lost_ordinals.free(gpa);
        }
        if (of_id.chain.count == 0) ledger.by_id.remove(gpa, pending.correlation);
        // Heaps may still refer to this place.
        ledger.slab.at(place).ordinal = -1;
        ledger.slab.remove(gpa, place);
        return pending;
    }

    /// The outstanding request at this place, if it is this one.
    pub fn find(ledger: *Ledger, ordinal: i64, place: i64) ?*Pending {
        if (std.math.cast(u32, place)) |at| if (ledger.isValid(ordinal, at)) return ledger.slab.at(at);
        for (ledger.silent.items()) |*pending| if (pending.ordinal == ordinal) return pending;
        return null;
    }

    /// Removes the oldest one, whether it expects a response or not. `silent`: which.
    pub fn drain(ledger: *Ledger, gpa: Allocator, silent: *bool) ?Pending {
        const oldest_open = ledger.first();
        silent.* = ledger.silent.len() != 0 and
            (oldest_open == null or ledger.silent.items()[0].ordinal < oldest_open.?.ordinal);
        if (silent.*) return ledger.silent.pop();
        if (oldest_open == null) return null;
        return ledger.remove(gpa, if (ledger.passed.first != NONE) ledger.passed.first else ledger.open.first);
    }

    pub fn free(ledger: *Ledger, e: *Engine) void {
        const gpa = e.gpa;
        var chains = [_]u32{ ledger.passed.first, ledger.open.first };
        for (&chains) |*place| while (place.* != NONE) : (place.* = ledger.slab.at(place.*).next) {
            const pending = ledger.slab.at(place.*);
            if (ledger.same(pending.correlation)) |of_id| of_id.lost_ordinals.free(gpa);
            kept_requests.drop(e, pending);
        };
        for (ledger.silent.items()) |*pending| kept_requests.drop(e, pending);
        ledger.by_id.free(gpa);
        ledger.slab.free(gpa);
        ledger.open = .{};
        ledger.passed = .{};
        ledger.silent.free(gpa);
        ledger.lost = 0;
        ledger.lost_ordinals.free(gpa);
        ledger.later.free(gpa);
    }
};
