//! Connections that begin in the kernel: from the SYN to the first request, which Python judges.

const state = @import("feed_state.zig");
const std = @import("std");
const table_of = @import("feed_table.zig");

const Connection = state.Connection;
const Feed = state.Feed;
const Stop = state.Stop;
const ACK = state.ACK;
const FIN = state.FIN;
const HEADER = state.HEADER;
const MARKS = state.MARKS;
const NONE = state.NONE;
const NO_TIME = state.NO_TIME;
const RST = state.RST;
const SYN = state.SYN;

/// Begins a connection with the SYN of a row whose endpoints have no connection here. False: the row is left to Python.
pub fn begin(feed: *Feed, row: u64) bool {
    // Skip rows whose endpoints had a connection here, which took the row.
    while (feed.begins_used < feed.begins_size and feed.begins[feed.begins_used] < row) feed.begins_used += 1;
    if (feed.begins_used == feed.begins_size) return false;
    const mark = &feed.marks[(table_of.hashOfRow(feed, row) >> 40) % MARKS];
    if (feed.begins[feed.begins_used] != row) {
        mark.* = 1;
        return false;
    }
    feed.begins_used += 1;
    const source = [3]u64{ feed.src_hi[row], feed.src_lo[row], feed.src_port[row] };
    const target = [3]u64{ feed.dst_hi[row], feed.dst_lo[row], feed.dst_port[row] };
    const order = std.mem.order(u64, &source, &target);
    if (mark.* != 0 or order == .eq) {
        mark.* = 1;
        return false;
    }
    const index = feed.places[feed.places_used];
    feed.places_rows[feed.places_used] = @intCast(row);
    feed.places_used += 1;
    const connection = &feed.connections[index];
    const active = connection.active;
    connection.* = std.mem.zeroes(Connection);
    connection.active = active;
    // Direction 0 is sent by the lower endpoint.
    const client: u8 = @intFromBool(order == .gt);
    connection.client = client;
    connection.high[client], connection.high[1 - client] = .{ source[0], target[0] };
    connection.low[client], connection.low[1 - client] = .{ source[1], target[1] };
    connection.port[client], connection.port[1 - client] = .{ feed.src_port[row], feed.dst_port[row] };
    connection.here = 1;
    connection.begun = .syn;
    // The initial state of `kafka/connection/exchange.py` and `kafka/connection/dialogue.py`.
    connection.dialogue.ids_rise = 1;
    connection.dialogue.most = 1;
    connection.dialogue.first = NONE;
    connection.dialogue.last = NONE;
    connection.dialogue.early = NONE;
    connection.dialogue.early_last = NONE;
    connection.dialogue.silent = NONE;
    connection.dialogue.silent_last = NONE;
    connection.dialogue.silent_ended = NONE;
    connection.dialogue.time = NO_TIME;
    for (&connection.streams) |*stream| {
        stream.piece.need = 4;
        stream.held = NONE;
        stream.held_last = NONE;
        stream.acked = NO_TIME;
    }
    connection.streams[client].next = feed.seq[row] +% 1;
    state.pass(feed, connection, row);
    table_of.enter(feed, index);
    return true;
}

/// The answer to a SYN.
pub fn answer(feed: *const Feed, connection: *Connection, row: u64) Stop!void {
    const client = &connection.streams[connection.client];
    const is_answer = feed.flags[row] & (SYN | FIN | RST | ACK) == SYN | ACK and feed.wire[row] == 0 and
        feed.ack[row] == client.next and state.isSource(feed, connection, 1 - connection.client, row);
    if (!is_answer) return error.Odd;
    client.ack = feed.ack[row];
    connection.streams[1 - connection.client].next = feed.seq[row] +% 1;
    connection.begun = .answered;
    state.pass(feed, connection, row);
}

/// The first data of a connection must begin with a whole frame that Python judges to be a request.
pub fn judge(feed: *Feed, connection: *const Connection, index: u32, direction: usize, row: u64) Stop!void {
    const size: u64 = @intCast(feed.length[row]);
    if (direction != connection.client or feed.seq[row] != connection.streams[direction].next) return error.Odd;
    if (feed.judged_row == row) return if (feed.judged == 0) error.Odd;
    if (size < 4 + HEADER) return error.Odd;
    const at: u64 = @intCast(feed.offset[row]);
    const found = try state.frameSize(feed, feed.buffer[at..][0..4]);
    if (4 + @as(u64, found) > size) return error.Odd;
    feed.asked_at = at + 4;
    feed.asked_size = found;
    feed.asked_connection = index;
    return error.Judge;
}
