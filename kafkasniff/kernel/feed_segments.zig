//! Segments of a stream. The next one is cut into frames, one after a hole is held back, and a copy counts as
//! retransmitted.
//!
//! `kafkasniff/tcp` and `kafkasniff/kafka/connection/framing.py` are the specification.

const messages_of = @import("feed_messages.zig");
const state = @import("feed_state.zig");
const std = @import("std");

const Connection = state.Connection;
const Dialogue = state.Dialogue;
const Feed = state.Feed;
const Piece = state.Piece;
const Recent = state.Recent;
const Stop = state.Stop;
const Stream = state.Stream;
const FIRST_ROOM = state.FIRST_ROOM;
const WHOLE_RATIO = state.WHOLE_RATIO;
const MAX_AHEAD = state.MAX_AHEAD;
const MAX_HELD_BYTES = state.MAX_HELD_BYTES;
const MAX_HELD_SEGMENTS = state.MAX_HELD_SEGMENTS;
const NONE = state.NONE;
const NO_TIME = state.NO_TIME;
const RECENT = state.RECENT;

/// Processes the data of a packet.
pub fn data(feed: *Feed, connection: *Connection, index: u32, direction: usize, row: u64, number: i64) Stop!void {
    const stream = &connection.streams[direction];
    const size: u32 = @intCast(feed.length[row]);
    const seq = feed.seq[row];
    const ahead: i32 = @bitCast(seq -% stream.next);
    if (ahead == 0) {
        try deliver(feed, connection, index, direction, row, number);
    } else {
        const copied = isCopy(stream, .{ .seq = seq, .wire = size, .ident = feed.ident[row] });
        if (ahead > 0) {
            if (ahead > MAX_AHEAD) return error.Odd;
            if (copied and isHeld(feed, stream, seq, size)) {
                stream.repeated += size;
                feed.repeated += size;
            } else try hold(feed, connection, stream, row, number);
        } else {
            // A segment that extends beyond the delivered bytes, or starts before the first of them, is left to Python.
            const behind: u32 = @abs(ahead);
            if (behind < size or behind > MAX_AHEAD or behind > stream.before + stream.bytes) return error.Odd;
            if (!copied and !(size == 1 and behind == 1)) {
                if (feed.every_end != 0 and connection.dialogue.retransmits == std.math.maxInt(u16)) return error.Odd;
                connection.dialogue.retransmits +%= 1;
                connection.retransmits +%= 1;
            }
            stream.repeated += size;
            feed.repeated += size;
        }
    }
    stream.recent[stream.packets % RECENT] = .{ .seq = seq, .wire = size, .ident = feed.ident[row] };
    stream.packets += 1;
}

fn isCopy(stream: *const Stream, packet_: Recent) bool {
    for (stream.recent[0..@min(stream.packets, RECENT)]) |one| if (std.meta.eql(one, packet_)) return true;
    return false;
}

/// Whether one held segment contains all of these bytes.
fn isHeld(feed: *const Feed, stream: *const Stream, seq: u32, size: u32) bool {
    const start = seq -% stream.next;
    var entry = stream.held;
    while (entry != NONE) : (entry = feed.held[entry].next) {
        const one = &feed.held[entry];
        const from = one.seq -% stream.next;
        if (from <= start and start + size <= from + one.size) return true;
    }
    return false;
}

/// Holds back a segment that does not overlap with another.
fn hold(feed: *Feed, connection: *const Connection, stream: *Stream, row: u64, number: i64) Stop!void {
    const size: u32 = @intCast(feed.length[row]);
    if (stream.held_count == MAX_HELD_SEGMENTS or stream.held_bytes + size > MAX_HELD_BYTES) return error.Odd;
    const seq = feed.seq[row];
    const start = seq -% stream.next;
    // Most segments follow the last one.
    var before = stream.held_last;
    if (before != NONE and start < feed.held[before].seq -% stream.next) {
        before = NONE;
        var entry = stream.held;
        while (feed.held[entry].seq -% stream.next <= start) : (entry = feed.held[entry].next) before = entry;
    }
    const after = if (before == NONE) stream.held else feed.held[before].next;
    if (before != NONE and feed.held[before].seq -% stream.next + feed.held[before].size > start) return error.Odd;
    if (after != NONE and start + size > feed.held[after].seq -% stream.next) return error.Odd;
    const entry = feed.free_held;
    if (entry == NONE) return error.NoHeld;
    if (size > feed.arena_size - feed.arena_used) return error.NoArena;
    feed.free_held = feed.held[entry].next;
    @memcpy(feed.arena[feed.arena_used..][0..size], feed.buffer[@intCast(feed.offset[row])..][0..size]);
    feed.held[entry] = .{
        .at = feed.arena_used,
        .packet = number,
        .time = feed.time[row],
        .count = connection.count,
        .clock = feed.clock[row],
        .seq = seq,
        .size = size,
        .next = after,
    };
    feed.arena_used += size;
    if (stream.held == NONE) {
        stream.opened = connection.count;
        stream.acked = NO_TIME;
    }
    if (before == NONE) stream.held = entry else feed.held[before].next = entry;
    if (after == NONE) stream.held_last = entry;
    stream.held_count += 1;
    stream.held_bytes += size;
}

/// Delivers the next segment and the held segments that follow it.
fn deliver(feed: *Feed, connection: *Connection, index: u32, direction: usize, row: u64, number: i64) Stop!void {
    const stream = &connection.streams[direction];
    var size: u32 = @intCast(feed.length[row]);
    if (stream.held != NONE) {
        if (feed.held[stream.held].seq -% stream.next < size) return error.Odd;
        // This may bring the requests of early responses.
        if (direction == connection.client and connection.dialogue.early != NONE) return error.Odd;
    }
    const at: u64 = @intCast(feed.offset[row]);
    const before = Before.of(feed, connection, direction);
    errdefer before.restore(feed, connection, direction);
    var step: u32 = 0;
    const time = feed.time[row];
    const fresh = Part{ .at = at, .end = at + size, .arena = false, .packet = number, .time = time };
    try segment(feed, connection, index, direction, row, &step, fresh);
    var entry = stream.held;
    var taken: u32 = 0;
    while (entry != NONE and feed.held[entry].seq == stream.next +% size) : (entry = feed.held[entry].next) {
        const one = &feed.held[entry];
        const part = Part{ .at = one.at, .end = one.at + one.size, .arena = true, .packet = one.packet, .time = one.time };
        try segment(feed, connection, index, direction, row, &step, part);
        size += one.size;
        taken += 1;
    }
    before.commit(feed, connection);
    stream.next +%= size;
    stream.bytes += size;
    feed.bytes += size;
    feed.framed += stream.framed - before.framed;
    if (taken == 0) return;
    stream.opened = connection.count;
    for (0..taken) |_| {
        stream.held_bytes -= feed.held[stream.held].size;
        stream.held = state.releaseHeld(feed, stream.held);
    }
    stream.held_count -= taken;
    if (stream.held == NONE) stream.held_last = NONE;
}

/// The state that a segment changes. It is restored if the segment turns out to be left to Python.
const Before = struct {
    dialogue: Dialogue,
    piece: Piece,
    framed: u64,
    messages: u64,
    arena: u64,

    inline fn of(feed: *const Feed, connection: *const Connection, direction: usize) Before {
        const stream = &connection.streams[direction];
        return .{
            .dialogue = connection.dialogue,
            .piece = stream.piece,
            .framed = stream.framed,
            .messages = feed.messages_used,
            .arena = feed.arena_used,
        };
    }

    fn restore(self: *const Before, feed: *Feed, connection: *Connection, direction: usize) void {
        const now = connection.dialogue;
        if (direction == connection.client) {
            // Requests of this segment come after those that were already waiting.
            var entry = if (self.dialogue.last == NONE) now.first else feed.waiting[self.dialogue.last].next;
            while (entry != NONE) entry = state.release(feed, entry);
            if (self.dialogue.last != NONE) feed.waiting[self.dialogue.last].next = NONE;
            const silent = self.dialogue.silent_last;
            entry = if (silent == NONE) now.silent_ended else feed.waiting[silent].next;
            while (entry != NONE) entry = state.release(feed, entry);
            if (silent != NONE) feed.waiting[silent].next = NONE;
        } else {
            var entry = self.dialogue.first;
            while (entry != now.first) : (entry = feed.waiting[entry].next) {
                const asked = feed.waiting[entry].message;
                if (asked != NONE) feed.messages[asked].pair = NONE;
            }
        }
        const last = self.dialogue.early_last;
        var early = if (last == NONE) now.early else feed.held[last].next;
        while (early != NONE) early = state.releaseHeld(feed, early);
        if (last != NONE) feed.held[last].next = NONE;
        connection.dialogue = self.dialogue;
        connection.streams[direction].piece = self.piece;
        connection.streams[direction].framed = self.framed;
        feed.messages_used = self.messages;
        feed.arena_used = self.arena;
    }

    /// Releases the requests that were answered.
    inline fn commit(self: *const Before, feed: *Feed, connection: *Connection) void {
        const dialogue = &connection.dialogue;
        while (dialogue.silent_ended != dialogue.silent) dialogue.silent_ended = state.release(feed, dialogue.silent_ended);
        if (dialogue.silent == NONE) dialogue.silent_last = NONE;
        var entry = self.dialogue.first;
        if (entry == NONE) return;
        while (entry != dialogue.first) entry = state.release(feed, entry);
    }
};

/// A delivered segment: bytes of the buffer or of the arena.
const Part = struct {
    at: u64,
    end: u64,
    arena: bool,
    packet: i64,
    time: i64,
};

/// Cuts a part of a stream into frames, which the packet at `row` completes. `step`: number of frames in the packet so
/// far.
inline fn segment(
    feed: *Feed,
    connection: *Connection,
    index: u32,
    direction: usize,
    row: u64,
    step: *u32,
    delivered: Part,
) Stop!void {
    const stream = &connection.streams[direction];
    const piece = &stream.piece;
    const number = delivered.packet;
    const bytes = if (delivered.arena) @as([*]const u8, feed.arena) else feed.buffer;
    var at = delivered.at;
    const end = delivered.end;
    while (at < end) {
        if (piece.have == 0 and end - at >= 4) {
            const size = try state.frameSize(feed, bytes[at..][0..4]);
            if (size <= end - at - 4) {
                try messages_of.message(feed, connection, index, direction, row, number, step, .{
                    .start = at + 4,
                    .size = size,
                    .bytes = bytes[at + 4 ..][0..size],
                    .arena = delivered.arena,
                    .first_packet = number,
                    .last_packet = number,
                    .first_time = delivered.time,
                });
                stream.framed += 4 + size;
                at += 4 + size;
                continue;
            }
        }
        if (piece.have == 0) {
            piece.first_packet = number;
            piece.last_packet = number;
            piece.first_time = delivered.time;
            piece.need = 4;
            piece.sized = 0;
            piece.room = 0;
        }
        const part: u32 = @intCast(@min(end - at, piece.need - piece.have));
        try makeRoom(feed, piece, part);
        @memcpy(feed.arena[piece.at + piece.have ..][0..part], bytes[at..][0..part]);
        piece.have += part;
        piece.first_packet = @min(piece.first_packet, number);
        piece.last_packet = @max(piece.last_packet, number);
        piece.last_time = feed.time[row];
        at += part;
        if (piece.sized == 0 and piece.have == 4) {
            piece.need = 4 + try state.frameSize(feed, feed.arena[piece.at..][0..4]);
            piece.sized = 1;
        }
        if (piece.sized != 0 and piece.have == piece.need) {
            const size = piece.need - 4;
            try messages_of.message(feed, connection, index, direction, row, number, step, .{
                .start = piece.at + 4,
                .size = size,
                .bytes = feed.arena[piece.at + 4 ..][0..size],
                .arena = true,
                .first_packet = piece.first_packet,
                .last_packet = piece.last_packet,
                .first_time = piece.first_time,
            });
            stream.framed += piece.need;
            piece.have = 0;
            piece.need = 4;
            piece.sized = 0;
        }
    }
}

/// Makes room for this many more bytes: for the whole frame once enough of it has been received that its stated size is
/// worth the room, else for twice as many, so that a frame is moved only a few times.
inline fn makeRoom(feed: *Feed, piece: *Piece, part: u32) Stop!void {
    const least = piece.have + part;
    if (least <= piece.room) return;
    var room = @max(2 * least, FIRST_ROOM);
    if (piece.sized != 0 and (room > piece.need or piece.need <= WHOLE_RATIO * least)) room = piece.need;
    if (room > feed.arena_size - feed.arena_used) return error.NoArena;
    const at = feed.arena_used;
    @memcpy(feed.arena[at..][0..piece.have], feed.arena[piece.at..][0..piece.have]);
    piece.at = at;
    piece.room = room;
    feed.arena_used += room;
}
