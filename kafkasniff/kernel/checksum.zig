//! CRC-32C (Castagnoli, RFC 3720 appendix B.4): by the processor's instruction where it has one.

const builtin = @import("builtin");
const std = @import("std");

const HAS_INSTRUCTION = builtin.cpu.arch == .x86_64 and builtin.cpu.has(.x86, .crc32);

const TABLES = make: {
    @setEvalBranchQuota(100_000);
    var tables: [8][256]u32 = undefined;
    for (0..256) |index| {
        var value: u32 = index;
        for (0..8) |_| value = if (value & 1 != 0) value >> 1 ^ 0x82F6_3B78 else value >> 1;
        tables[0][index] = value;
    }
    for (1..8) |table| {
        for (0..256) |index| {
            const before = tables[table - 1][index];
            tables[table][index] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
    break :make tables;
};

pub fn crc32c(bytes: []const u8) u32 {
    var at: usize = 0;
    if (HAS_INSTRUCTION) {
        var sum: u64 = 0xFFFF_FFFF;
        while (bytes.len - at >= 8) : (at += 8) {
            const word = std.mem.readInt(u64, bytes[at..][0..8], .little);
            sum = asm ("crc32q %[word], %[sum]"
                : [sum] "=r" (-> u64),
                : [word] "r" (word),
                  [before] "0" (sum),
            );
        }
        return tail(@truncate(sum), bytes[at..]);
    }
    var sum: u32 = 0xFFFF_FFFF;
    while (bytes.len - at >= 8) : (at += 8) {
        const word = std.mem.readInt(u64, bytes[at..][0..8], .little) ^ sum;
        sum = 0;
        inline for (0..8) |index| sum ^= TABLES[7 - index][@as(u8, @truncate(word >> (8 * index)))];
    }
    return tail(sum, bytes[at..]);
}

fn tail(start: u32, bytes: []const u8) u32 {
    var sum = start;
    for (bytes) |byte| sum = sum >> 8 ^ TABLES[0][@as(u8, @truncate(sum)) ^ byte];
    return ~sum;
}
