//! The hash table that finds connections by their endpoints.

const state = @import("feed_state.zig");

const Connection = state.Connection;
const Feed = state.Feed;
const NONE = state.NONE;

/// The hash depends on a secret of the process: endpoints may be chosen to share a place.
inline fn hashEndpoint(feed: *const Feed, high: u64, low: u64, port: u16) u64 {
    const address = folded(high ^ feed.secret[0], low ^ feed.secret[1]);
    return folded(address ^ feed.secret[2], port ^ feed.secret[3]);
}

/// Both halves of a product, as in wyhash.
inline fn folded(one: u64, other: u64) u64 {
    const product = @as(u128, one) * other;
    return @as(u64, @truncate(product)) ^ @as(u64, @truncate(product >> 64));
}

inline fn slot(feed: *const Feed, hash: u64) u64 {
    return hash & (feed.table_size - 1);
}

fn hashOf(feed: *const Feed, connection: *const Connection) u64 {
    return hashEndpoint(feed, connection.high[0], connection.low[0], connection.port[0]) +%
        hashEndpoint(feed, connection.high[1], connection.low[1], connection.port[1]);
}

pub inline fn hashOfRow(feed: *const Feed, row: u64) u64 {
    return hashEndpoint(feed, feed.src_hi[row], feed.src_lo[row], feed.src_port[row]) +%
        hashEndpoint(feed, feed.dst_hi[row], feed.dst_lo[row], feed.dst_port[row]);
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
    var at = slot(feed, hashOf(feed, &feed.connections[index]));
    while (feed.table[at] != NONE) at = (at + 1) & (feed.table_size - 1);
    feed.table[at] = index;
}

/// Removes a connection.
pub fn forget(feed: *Feed, index: u32) void {
    const mask = feed.table_size - 1;
    var at = slot(feed, hashOf(feed, &feed.connections[index]));
    while (feed.table[at] != index) : (at = (at + 1) & mask) if (feed.table[at] == NONE) return;
    // The entries after it move up, unless that would put them before their own place.
    var hole = at;
    while (true) {
        at = (at + 1) & mask;
        const other = feed.table[at];
        if (other == NONE) break;
        const home = slot(feed, hashOf(feed, &feed.connections[other]));
        if (((at -% home) & mask) >= ((at -% hole) & mask)) {
            feed.table[hole] = other;
            hole = at;
        }
    }
    feed.table[hole] = NONE;
}
