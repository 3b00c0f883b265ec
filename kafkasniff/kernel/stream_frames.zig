//! Frames: int32 size and message, cut out of the segments of a stream that is in step.
//!
//! A framer stays in step over a gap that ends within the current frame, which becomes incomplete. Over any other gap,
//! and at an impossible size, it falls out of step.

const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const std = @import("std");
const types = @import("stream_types.zig");

const Segment = types.Segment;

/// Reserved at once for a frame; sizes come from the wire.
const RESERVED = 16 << 10;

pub const Frame = struct {
    /// Order of the packet that completed it (if incomplete: at which it was known to stay so).
    order: i64,
    dir: usize,
    /// The message, without its length prefix.
    data: []const u8,
    /// Position of the length prefix in its stream; -1: it came late.
    at: i64,
    /// The length prefix; larger than the message if bytes are missing at its end.
    size: i64,
    first_packet: i64,
    last_packet: i64,
    first_time: i64,
    time: i64,
    /// The packet that made it complete, which differs from `last_packet` if segments were held back.
    last_seen: i64,

    pub fn cut(frame: *const Frame) bool {
        return @as(i64, @intCast(frame.data.len)) != frame.size;
    }
};

pub const Framer = struct {
    have: std.ArrayList(u8) = .empty,
    /// Total size of the frame; 4 while its length prefix is incomplete.
    need: i64 = 4,
    sized: bool = false,
    /// Bytes up to the end of a frame that was given up.
    skip: i64 = 0,
    /// Position in the stream of the first collected byte.
    at: i64 = 0,
    first_packet: i64 = 0,
    last_packet: i64 = 0,
    first_time: i64 = 0,
    last_time: i64 = 0,

    pub fn pending(framer: *const Framer) i64 {
        return @intCast(framer.have.items.len);
    }

    /// Size of the incomplete frame, by its length prefix.
    pub fn announced(framer: *const Framer) ?i64 {
        return if (framer.sized) framer.need - 4 else null;
    }

    /// Its length prefix; missing bytes are 0.
    pub fn prefix(framer: *const Framer) u32 {
        var bytes: [4]u8 = @splat(0);
        const have = framer.have.items[0..@min(framer.have.items.len, 4)];
        @memcpy(bytes[0..have.len], have);
        return std.mem.readInt(u32, &bytes, .big);
    }

    fn take(framer: *Framer, dir: usize, order: i64, time: i64, packet: i64) Frame {
        return .{
            .order = order,
            .dir = dir,
            .data = framer.have.items[4..],
            .at = framer.at,
            .size = framer.need - 4,
            .first_packet = framer.first_packet,
            .last_packet = framer.last_packet,
            .first_time = framer.first_time,
            .time = time,
            .last_seen = packet,
        };
    }

    fn begin(framer: *Framer) void {
        framer.have = .empty;
        framer.need = 4;
        framer.sized = false;
    }

    pub fn free(framer: *Framer, e: *Engine) void {
        framer.have.clearAndFree(e.gpa);
    }

    /// Cuts a segment and passes its frames to `sink.frame`. Returns where a frame of impossible size is, if there is
    /// one, and that size: the framer is void then. Hot.
    pub fn cut(framer: *Framer, e: *Engine, dir: usize, segment: Segment, sink: anytype) ?Lost {
        const data = segment.data;
        var at: usize = 0;
        if (framer.skip != 0) {
            at = @intCast(@min(framer.skip, @as(i64, @intCast(data.len))));
            framer.skip -= @intCast(at);
        }
        while (at < data.len) {
            if (framer.have.items.len == 0 and data.len - at >= 4) {
                const size: i64 = std.mem.readInt(i32, data[at..][0..4], .big);
                if (size < 0 or size > e.max_frame) return .{ .at = at, .size = size };
                const end = at + 4 + @as(usize, @intCast(size));
                if (end <= data.len) {
                    sink.frame(.{
                        .order = segment.order,
                        .dir = dir,
                        .data = data[at + 4 .. end],
                        .at = segment.at + @as(i64, @intCast(at)),
                        .size = size,
                        .first_packet = segment.packet,
                        .last_packet = segment.packet,
                        .first_time = segment.time,
                        .time = segment.released,
                        .last_seen = segment.packet,
                    });
                    at = end;
                    continue;
                }
                framer.have.ensureTotalCapacityPrecise(e.gpa, @min(4 + @as(usize, @intCast(size)), RESERVED)) catch
                    exhausted();
            }
            if (framer.have.items.len == 0) {
                framer.at = segment.at + @as(i64, @intCast(at));
                framer.first_packet = segment.packet;
                framer.last_packet = segment.packet;
                framer.first_time = segment.time;
            }
            const want: usize = @intCast(framer.need - framer.pending());
            const n = @min(want, data.len - at);
            framer.have.appendSlice(e.gpa, data[at..][0..n]) catch exhausted();
            at += n;
            framer.first_packet = @min(framer.first_packet, segment.packet);
            framer.last_packet = @max(framer.last_packet, segment.packet);
            framer.last_time = segment.released;
            if (framer.have.items.len == 4 and !framer.sized) {
                const size: i64 = std.mem.readInt(i32, framer.have.items[0..4], .big);
                if (size < 0 or size > e.max_frame) return .{ .at = at, .size = size };
                framer.sized = true;
                framer.need = 4 + size;
            }
            if (framer.sized and framer.pending() == framer.need) {
                framer.pass(e, framer.take(dir, segment.order, segment.released, segment.packet), sink);
            }
        }
        return null;
    }

    /// Bytes are missing here. Returns whether it is still in step; a truncated frame is passed on.
    pub fn gap(framer: *Framer, e: *Engine, dir: usize, missing: types.Gap, sink: anytype) bool {
        var size = missing.size;
        if (framer.skip != 0) {
            if (!missing.exact) return false;
            const within = @min(size, framer.skip);
            framer.skip -= within;
            size -= within;
            return size == 0;
        }
        if (!framer.sized) return false;
        const rest = framer.need - framer.pending();
        const time = if (missing.snapped or rest > size) missing.resumed else framer.last_time;
        const frame = framer.take(dir, missing.order, time, missing.packet);
        framer.skip = @max(rest - size, 0);
        framer.pass(e, frame, sink);
        return missing.exact and size <= rest;
    }

    /// Passes the collected frame on; its bytes are freed with the next call.
    fn pass(framer: *Framer, e: *Engine, frame: Frame, sink: anytype) void {
        const memory = framer.have.allocatedSlice();
        framer.begin();
        sink.frame(frame);
        e.retire(memory);
    }
};

pub const Lost = struct { at: usize, size: i64 };
