//! The hash table that finds connections by their endpoints.

const state = @import("feed_state.zig");

const Connection = state.Connection;
const Feed = state.Feed;
const NONE = state.NONE;

inline fn hashEndpoint(high: u64, low: u64, port: u16) u64 {
    var value = (high ^ (low *% 0x9E37_79B9_7F4A_7C15)) +% port;
    value = (value ^ (value >> 32)) *% 0xD6E8_FEB8_6659_FD93;
    return value ^ (value >> 32);
}

inline fn slot(feed: *const Feed, hash: u64) u64 {
    return hash & (feed.table_size - 1);
}

fn hashOf(connection: *const Connection) u64 {
    return hashEndpoint(connection.high[0], connection.low[0], connection.port[0]) +%
        hashEndpoint(connection.high[1], connection.low[1], connection.port[1]);
}

pub inline fn hashOfRow(feed: *const Feed, row: u64) u64 {
    return hashEndpoint(feed.src_hi[row], feed.src_lo[row], feed.src_port[row]) +%
        hashEndpoint(feed.dst_hi[row], feed.dst_lo[row], feed.dst_port[row]);
}

pub fn find(feed: *const Feed, row: u64) ?u32 {
    var at = slot(feed, hashOfRow(feed, row));
    while (feed.table[at] != NONE) : (at = (at + 1) & (feed.table_size - 1)) {
        const index = feed.table[at];
        const connection = &feed.connections[index];
        if (state.isSource(feed, connection, 0, row) or state.isSource(feed, connection, 1, row)) return index;
    }
    return null;
}

/// Adds a connection. The table must have a free place.
pub fn enter(feed: *Feed, index: u32) void {
    var at = slot(feed, hashOf(&feed.connections[index]));
    while (feed.table[at] != NONE) at = (at + 1) & (feed.table_size - 1);
    feed.table[at] = index;
}

/// Removes a connection.
pub fn forget(feed: *Feed, index: u32) void {
    const mask = feed.table_size - 1;
    var at = slot(feed, hashOf(&feed.connections[index]));
    while (feed.table[at] != index) : (at = (at + 1) & mask) if (feed.table[at] == NONE) return;
    // The entries after it move up, unless that would put them before their own place.
    var hole = at;
    while (true) {
        at = (at + 1) & mask;
        const other = feed.table[at];
        if (other == NONE) break;
        const home = slot(feed, hashOf(&feed.connections[other]));
        if (((at -% home) & mask) >= ((at -% hole) & mask)) {
            feed.table[hole] = other;
            hole = at;
        }
    }
    feed.table[hole] = NONE;
}
