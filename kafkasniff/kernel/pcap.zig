//! Records of a pcap file: where each begins, from length to length.
//!
//! The specification is `capture/pcap.py` (`_starts`), which looks at everything else in a record by columns.

const std = @import("std");

/// Offset in a record of its captured length.
const LENGTH_AT = 8;

pub const Records = extern struct {
    data: [*]const u8,
    end: u64,
    /// Where a record begins; as a result, the first one whose length is not there or cannot be.
    position: u64,
    /// Bytes of a record's header, and of a captured packet at most.
    header: u64,
    longest: u64,
    /// 1: numbers are big-endian.
    big: u64,
    starts: [*]i64,
    room: u64,

    // Results
    found: u64,
    /// 1: the length at `position` cannot be that of a record.
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
