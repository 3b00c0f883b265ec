//! Headers of packets to columns: Ethernet or bare IP, IPv4 without fragments or IPv6 without extensions, TCP.
//!
//! The specification is `capture/link/layers.py` and `internet.py`. A packet with anything else, or with
//! truncated or contradictory headers, is left to Python.

const std = @import("std");

/// Link types of the pcap formats.
const ETHERNET = 1;
const RAW = 101;

const IPV4 = 0x0800;
const IPV6 = 0x86DD;
const TCP = 6;
const MAPPED = 0xFFFF_0000_0000;
/// `capture/link/decode.py`: LARGEST_PACKET.
const LARGEST = 1 << 30;

pub const Packets = extern struct {
    buffer: [*]const u8,
    size: u64,
    /// For each packet: offset of its first byte, bytes captured and on the wire, and link type.
    start: [*]const i64,
    captured: [*]const i64,
    wire: [*]const i64,
    link: [*]const i32,
    count: u64,

    // Columns, with room for `count` rows: those of `PacketBatch`
    rows: [*]i64,
    src_hi: [*]u64,
    src_lo: [*]u64,
    dst_hi: [*]u64,
    dst_lo: [*]u64,
    src_port: [*]u16,
    dst_port: [*]u16,
    seq: [*]u32,
    ack: [*]u32,
    flags: [*]u8,
    window: [*]u16,
    offset: [*]i64,
    length: [*]i32,
    wire_length: [*]i32,
    ident: [*]u32,
    /// Packets that are left to Python, with room for `count`.
    left: [*]i64,

    // Results
    found: u64,
    left_found: u64,

    pub fn read(self: *Packets) void {
        self.found = 0;
        self.left_found = 0;
        for (0..self.count) |row| {
            if (self.packet(row)) {
                self.rows[self.found] = @intCast(row);
                self.found += 1;
            } else {
                self.left[self.left_found] = @intCast(row);
                self.left_found += 1;
            }
        }
    }

    /// Writes the next row of the columns; false: the packet is left to Python.
    inline fn packet(self: *Packets, row: usize) bool {
        const start = self.start[row];
        const captured = self.captured[row];
        const wire = self.wire[row];
        if (start < 0 or captured < 0 or wire < 0 or captured > std.math.maxInt(i32)) return false;
        if (start > self.size or captured > self.size - @as(u64, @intCast(start))) return false;
        const from: usize = @intCast(start);
        const bytes = self.buffer[from..][0..@intCast(captured)];
        // All positions below are relative to the packet's first byte.
        const wire_end: usize = @intCast(@min(wire, LARGEST));
        switch (self.link[row]) {
            ETHERNET => {
                if (bytes.len < 14) return false;
                const kind = short(bytes, 12);
                if (kind != IPV4 and kind != IPV6) return false;
                return self.internet(bytes, from, 14, wire_end);
            },
            RAW => return self.internet(bytes, from, 0, wire_end),
            else => return false,
        }
    }

    inline fn internet(self: *Packets, bytes: []const u8, from: usize, at: usize, wire_end: usize) bool {
        if (bytes.len <= at) return false;
        const head = bytes[at..];
        const row = self.found;
        switch (head[0] >> 4) {
            4 => {
                if (head.len < 20) return false;
                const size = @as(usize, head[0] & 15) * 4;
                const total = short(head, 2);
                // 0: segmentation offload sets it later.
                const end = if (total == 0) wire_end else at + total;
                if (size < 20 or end < at + size) return false;
                if (short(head, 6) & 0x3FFF != 0 or head[9] != TCP) return false;
                if (!self.segment(bytes, from, at + size, end, short(head, 4))) return false;
                self.src_hi[row] = 0;
                self.src_lo[row] = word(head, 12) | @as(u64, MAPPED);
                self.dst_hi[row] = 0;
                self.dst_lo[row] = word(head, 16) | @as(u64, MAPPED);
            },
            6 => {
                if (head.len < 40) return false;
                const payload = short(head, 4);
                if (payload == 0 or head[6] != TCP) return false;
                const end = at + 40 + payload;
                if (!self.segment(bytes, from, at + 40, end, short(head, 2))) return false;
                self.src_hi[row] = long(head, 8);
                self.src_lo[row] = long(head, 16);
                self.dst_hi[row] = long(head, 24);
                self.dst_lo[row] = long(head, 32);
            },
            else => return false,
        }
        return true;
    }

    /// `wire_end`: where the IP packet ends on the wire. `ident`: of the IP header.
    inline fn segment(self: *Packets, bytes: []const u8, from: usize, at: usize, wire_end: usize, ident: u32) bool {
        const end = @min(bytes.len, wire_end);
        if (end < at + 20) return false;
        const head = bytes[at..][0..20];
        const size = @as(usize, head[12] >> 4) * 4;
        const payload = at + size;
        if (size < 20 or wire_end < payload) return false;
        const row = self.found;
        // Options that the snap length cut off leave an empty payload.
        const offset = @min(payload, end);
        self.src_port[row] = short(head, 0);
        self.dst_port[row] = short(head, 2);
        self.seq[row] = word(head, 4);
        self.ack[row] = word(head, 8);
        self.flags[row] = head[13];
        self.window[row] = short(head, 14);
        self.offset[row] = @intCast(from + offset);
        self.length[row] = @intCast(end - offset);
        self.wire_length[row] = @intCast(wire_end - payload);
        self.ident[row] = ident << 16 | short(head, 16);
        return true;
    }
};

inline fn short(bytes: []const u8, at: usize) u16 {
    return std.mem.readInt(u16, bytes[at..][0..2], .big);
}

inline fn word(bytes: []const u8, at: usize) u32 {
    return std.mem.readInt(u32, bytes[at..][0..4], .big);
}

inline fn long(bytes: []const u8, at: usize) u64 {
    return std.mem.readInt(u64, bytes[at..][0..8], .big);
}

/// Finds the packets in a block of a ring (`capture/live/frames.py`): each header has the distance to the next one. Returns
/// how many of `count` packets have a header of `size` bytes within the block.
pub fn ringPlaces(block: []const u8, first: u32, size: u32, places: []i64) u64 {
    var at: usize = first;
    for (places, 0..) |*place, found| {
        if (size < 4 or at > block.len or block.len - at < size) return found;
        place.* = @intCast(at);
        at += std.mem.readInt(u32, block[at..][0..4], .native);
    }
    return places.len;
}
