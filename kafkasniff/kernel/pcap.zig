//! Records of a pcap file and packet blocks of a pcapng file: finds each one by the length of the one before it.
//!
//! `capture/formats/pcap.py` (`_starts`) and `capture/formats/pcapng.py` (`_scan`) check the rest of each by columns.

const std = @import("std");

/// Offset of the captured length in a record.
const LENGTH_AT = 8;

pub const Records = extern struct {
    data: [*]const u8,
    end: u64,
    /// Where a record begins. As a result: the first record whose length is missing or impossible.
    position: u64,
    /// Bytes of a record's header, and the largest captured packet.
    header: u64,
    longest: u64,
    /// 1: numbers are big-endian.
    big: u64,
    starts: [*]i64,
    room: u64,

    // Results
    found: u64,
    /// 1: the length at `position` is impossible.
    corrupt: u64,

    pub fn read(self: *Records) void {
        self.found = 0;
        self.corrupt = 0;
        const order: std.builtin.Endian = if (self.big != 0) .big else .little;
        var at = self.position;
        defer self.position = at;
        while (self.found < self.room and at <= self.end and self.end - at >= LENGTH_AT + 4) {
            const length = std.mem.readInt(u32, self.data[at + LENGTH_AT ..][0..4], order);
            if (length > self.longest) {
                self.corrupt = 1;
                return;
            }
            self.starts[self.found] = @intCast(at);
            self.found += 1;
            at += self.header + length;
        }
    }
};

/// Bytes of the fixed fields of a packet block and the length after it, by type: obsolete, simple, enhanced; 0: another.
const LEAST = [_]u32{ 0, 0, 32, 16, 0, 0, 32 };

pub const Blocks = extern struct {
    data: [*]const u8,
    end: u64,
    /// Where a block begins. As a result: the first block that is not a whole packet.
    position: u64,
    /// Bytes of the largest block.
    longest: u64,
    /// 1: numbers are big-endian.
    big: u64,
    starts: [*]i64,
    room: u64,

    // Result
    found: u64,

    pub fn read(self: *Blocks) void {
        self.found = 0;
        const order: std.builtin.Endian = if (self.big != 0) .big else .little;
        var at = self.position;
        defer self.position = at;
        while (self.found < self.room and at <= self.end and self.end - at >= 8) {
            const kind = std.mem.readInt(u32, self.data[at..][0..4], order);
            const length = std.mem.readInt(u32, self.data[at + 4 ..][0..4], order);
            if (kind >= LEAST.len or LEAST[kind] == 0 or length < LEAST[kind]) return;
            if (length & 3 != 0 or length > self.longest or length > self.end - at) return;
            self.starts[self.found] = @intCast(at);
            self.found += 1;
            at += length;
        }
    }
};
