//! `records` fields in summaries: batches of magic 2, whose headers alone are shown.
//!
//! The checks are those of `records.zig` when it is asked for headers alone.

const std = @import("std");
const crc32c = @import("checksum.zig").crc32c;
const Error = @import("reader.zig").Error;
const Out = @import("summary_text.zig").Out;
const records_of = @import("records.zig");
const tables = @import("summary_table.zig");

/// The batches of a field.
pub const Batches = struct {
    const ENTRY = 12;
    const COMMON_SIZE = 17;
    const HEADER_SIZE = 61;
    const CRC = 17;
    const CRC_START = 21;
    const COUNT = 57;
    /// As `records.MAX_BATCH_LENGTH`.
    const MAX_BATCH_LENGTH = 1 << 30;
    const MIN_LENGTH_0 = 14;

    bytes: []const u8,
    at: usize = 0,

    /// The next whole batch.
    inline fn next(self: *Batches) ?[]const u8 {
        const left = self.bytes.len - self.at;
        if (left < COMMON_SIZE) return null;
        const size = ENTRY + @as(u64, std.mem.readInt(u32, self.bytes[self.at + 8 ..][0..4], .big));
        if (size > left) return null;
        const found = self.bytes[self.at..][0..@intCast(size)];
        self.at += found.len;
        return found;
    }

    pub fn isEmpty(bytes: []const u8) bool {
        var batches = Batches{ .bytes = bytes };
        return batches.next() == null;
    }

    /// `Odd` if there is anything to report of the field, or if any part of it is left to Python.
    pub fn check(bytes: []const u8, flags: tables.Flags) Error!void {
        if (flags.secret or flags.unaligned) return error.Odd;
        var at: usize = 0;
        while (bytes.len - at >= COMMON_SIZE) {
            if (bytes[at + 16] != 2) return error.Odd;
            const length = std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big);
            if (length < HEADER_SIZE - ENTRY or length > MAX_BATCH_LENGTH) return error.Odd;
            const size = ENTRY + @as(usize, @intCast(length));
            if (size > bytes.len - at) break;
            const batch = bytes[at..][0..size];
            const attributes = std.mem.readInt(u16, batch[CRC_START..][0..2], .big);
            if (attributes & records_of.UNKNOWN_BITS != 0 or attributes & 7 >= records_of.CODECS.len) return error.Odd;
            if (crc32c(batch[CRC_START..]) != std.mem.readInt(u32, batch[CRC..][0..4], .big)) return error.Odd;
            at += size;
        }
        const rest = bytes.len - at;
        if (rest > 0 and flags.whole) return error.Odd;
        if (rest >= ENTRY and rest < COMMON_SIZE) {
            const length = std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big);
            if (length < MIN_LENGTH_0 or length > MAX_BATCH_LENGTH) return error.Odd;
        }
    }

    /// `12 records 3.1 kB lz4`, `no records`.
    pub fn phrase(bytes: []const u8, out: *Out) Error!void {
        var batches = Batches{ .bytes = bytes };
        var count: i64 = 0;
        var size: u64 = 0;
        var number: u64 = 0;
        var codecs: [records_of.CODECS.len]u8 = undefined;
        var kinds: usize = 0;
        while (batches.next()) |batch| {
            number += 1;
            count += std.mem.readInt(i32, batch[COUNT..][0..4], .big);
            size += batch.len;
            const codec = batch[CRC_START + 1] & 7;
            if (std.mem.indexOfScalar(u8, codecs[0..kinds], codec) == null) {
                codecs[kinds] = codec;
                kinds += 1;
            }
        }
        if (number == 0) return out.put("no records");
        try out.count(count, "record");
        try out.put(" ");
        try out.amount(size);
        if (kinds > 1 or codecs[0] != 0) {
            for (codecs[0..kinds], 0..) |codec, index| {
                try out.put(if (index == 0) " " else "/");
                try out.put(records_of.CODECS[codec]);
            }
        }
        if (number > 1) {
            try out.put(" in ");
            try out.integer(@intCast(number));
            try out.put(" batches");
        }
    }
};
