//! Streams: packets of connections that are in step become messages, in capture order, with each response paired to its
//! request.
//!
//! Python hands a connection over once its protocol is known and its streams are cut into frames. A connection may also
//! begin here with its SYN; then Python judges its first request. The connection is handed back, in its state at a
//! packet boundary, when anything happens besides requests and their responses in turn. Segments may be repeated and
//! out of order: those after a hole are held back until it is filled. Overlaps and gaps are left to Python. The
//! specification is `kafkasniff/tcp` and `kafkasniff/kafka/{framing,dialogue,exchange}.py`. `kafkasniff/native/feed.py`
//! has the same structures.

const begin_of = @import("feed_begin.zig");
const segments_of = @import("feed_segments.zig");
const state = @import("feed_state.zig");
const table_of = @import("feed_table.zig");

const Connection = state.Connection;
const Feed = state.Feed;
const Status = state.Status;
const Stop = state.Stop;
const Stream = state.Stream;
const ACK = state.ACK;
const FIN = state.FIN;
const GRACE_NS = state.GRACE_NS;
const GRACE_PACKETS = state.GRACE_PACKETS;
const HELD_MEMORY = state.HELD_MEMORY;
const NONE = state.NONE;
const NO_TIME = state.NO_TIME;
const ONE_SIDED_PACKETS = state.ONE_SIDED_PACKETS;
const RST = state.RST;
const SYN = state.SYN;

/// Processes rows from `row` on.
pub fn run(feed: *Feed) Status {
    while (feed.row < feed.rows) : (feed.row += 1) {
        const row = feed.row;
        const index = table_of.find(feed, row) orelse {
            if (!begin_of.begin(feed, row)) leave(feed, row);
            continue;
        };
        const connection = &feed.connections[index];
        if (connection.here == 0) {
            leave(feed, row);
            continue;
        }
        packet(feed, connection, index, row) catch |reason| switch (reason) {
            error.Odd => {
                connection.here = 0;
                feed.back[feed.back_used] = index;
                feed.back_used += 1;
                leave(feed, row);
            },
            error.NoMessages => return .no_messages,
            error.NoArena => return .no_arena,
            error.NoWaiting => return .no_waiting,
            error.NoHeld => return .no_held,
            error.Unknown => return .unknown,
            error.Judge => return .judge,
        };
    }
    feed.kept = 0;
    for (feed.active[0..feed.active_used]) |index| {
        const connection = &feed.connections[index];
        if (connection.here == 0) continue;
        feed.kept += connection.dialogue.early_bytes + connection.dialogue.early_count * HELD_MEMORY;
        for (&connection.streams) |*stream| {
            feed.kept += stream.piece.have + stream.held_bytes + stream.held_count * HELD_MEMORY;
        }
    }
    return .done;
}

inline fn leave(feed: *Feed, row: u64) void {
    feed.left[feed.left_used] = @intCast(row);
    feed.left_used += 1;
}

fn packet(feed: *Feed, connection: *Connection, index: u32, row: u64) Stop!void {
    const wire = feed.wire[row];
    const clock = feed.clock[row];
    if (feed.time[row] == NO_TIME or clock -% connection.clock >= feed.idle) return error.Odd;
    if (connection.begun == .syn) return begin_of.answer(feed, connection, row);
    if (feed.flags[row] & (SYN | FIN | RST | ACK) != ACK or wire != feed.length[row] or wire < 0) return error.Odd;
    const direction: usize = @intFromBool(!state.isSource(feed, connection, 0, row));
    const peer = &connection.streams[1 - direction];
    const holds = connection.streams[direction].held != NONE or peer.held != NONE;
    if (holds and mayBeGap(feed, connection, direction, row)) return error.Odd;
    const number = state.numberOf(feed, row);
    const begins = connection.begun == .answered or connection.begun == .open;
    if (begins and connection.begun == .answered and direction != connection.client) return error.Odd;
    if (wire > 0) {
        const at: u64 = @intCast(feed.offset[row]);
        if (at + @as(u64, @intCast(wire)) > feed.buffer_size) return error.Odd;
        if (begins) try begin_of.judge(feed, connection, index, direction, row);
        try segments_of.data(feed, connection, index, direction, row, number);
        if (begins) connection.begun = .judged;
        if (connection.active == 0) {
            connection.active = 1;
            feed.active[feed.active_used] = index;
            feed.active_used += 1;
        }
    }
    if (begins and wire == 0) connection.begun = .open;
    peer.ack = feed.ack[row];
    state.pass(feed, connection, row);
    if (connection.streams[direction].held != NONE or peer.held != NONE) {
        connection.count += 1;
        if (peer.held != NONE) {
            peer.opened = connection.count;
            peer.acked = @max(peer.acked, acknowledged(peer, feed.ack[row]));
        }
    }
}

/// Position of an acknowledgement in the stream, as `bytes` counts.
inline fn acknowledged(stream: *const Stream, ack: u32) i64 {
    return @as(i64, @intCast(stream.bytes)) + @as(i32, @bitCast(ack -% stream.next));
}

/// Whether a packet may turn a hole into a gap, which Python decides.
fn mayBeGap(feed: *const Feed, connection: *const Connection, direction: usize, row: u64) bool {
    const count = connection.count + 1;
    for (&connection.streams, 0..) |*stream, side| {
        if (stream.held == NONE) continue;
        const first = &feed.held[stream.held];
        var acked = stream.acked;
        if (side != direction) {
            acked = @max(acked, acknowledged(stream, feed.ack[row]));
        } else if (count - stream.opened >= ONE_SIDED_PACKETS) return true;
        if (acked < acknowledged(stream, first.seq)) continue;
        if (count - first.count >= GRACE_PACKETS or feed.clock[row] -% first.clock >= GRACE_NS) return true;
    }
    return false;
}

/// Moves undelivered bytes from another arena to this one, and forgets the messages of the earlier batch.
pub fn carry(feed: *Feed, from: [*]const u8) Status {
    var active: u64 = 0;
    for (feed.active[0..feed.active_used]) |index| {
        const connection = &feed.connections[index];
        connection.active = 0;
        if (connection.here == 0) continue;
        for (&connection.streams) |*stream| {
            const piece = &stream.piece;
            if (piece.have > 0) {
                piece.at = move(feed, from, piece.at, piece.have) orelse return .no_arena;
                piece.room = piece.have;
                connection.active = 1;
            }
            var entry = stream.held;
            while (entry != NONE) : (entry = feed.held[entry].next) {
                const one = &feed.held[entry];
                one.at = move(feed, from, one.at, one.size) orelse return .no_arena;
                connection.active = 1;
            }
        }
        var early = connection.dialogue.early;
        while (early != NONE) : (early = feed.held[early].next) {
            const one = &feed.held[early];
            one.at = move(feed, from, one.at, one.size) orelse return .no_arena;
            connection.active = 1;
        }
        var entry = connection.dialogue.first;
        while (entry != NONE) : (entry = feed.waiting[entry].next) feed.waiting[entry].message = NONE;
        if (connection.active == 0) continue;
        feed.active[active] = index;
        active += 1;
    }
    feed.active_used = active;
    return .done;
}

inline fn move(feed: *Feed, from: [*]const u8, at: u64, size: u32) ?u64 {
    if (size > feed.arena_size - feed.arena_used) return null;
    const to = feed.arena_used;
    @memcpy(feed.arena[to..][0..size], from[at..][0..size]);
    feed.arena_used += size;
    return to;
}
