//! CRC-32C (Castagnoli, RFC 3720 appendix B.4): by the processor's instruction where it has one. And the CRC-32 of
//! messages of magic 0 and 1 (ISO 3309, as in gzip).

const builtin = @import("builtin");
const std = @import("std");

const HAS_INSTRUCTION = builtin.cpu.arch == .x86_64 and builtin.cpu.has(.x86, .crc32);

const Tables = [8][256]u32;

const CASTAGNOLI = tablesOf(0x82F6_3B78);
const ISO_3309 = tablesOf(0xEDB8_8320);

/// For eight bytes at a time; `polynomial` reversed.
fn tablesOf(comptime polynomial: u32) Tables {
    @setEvalBranchQuota(100_000);
    var tables: Tables = undefined;
    for (0..256) |index| {
        var value: u32 = index;
        for (0..8) |_| value = if (value & 1 != 0) value >> 1 ^ polynomial else value >> 1;
        tables[0][index] = value;
    }
    for (1..8) |table| {
        for (0..256) |index| {
            const before = tables[table - 1][index];
            tables[table][index] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
    return tables;
}

pub fn crc32c(bytes: []const u8) u32 {
    if (HAS_INSTRUCTION) {
        var at: usize = 0;
        var sum: u64 = 0xFFFF_FFFF;
        while (bytes.len - at >= 8) : (at += 8) {
            const word = std.mem.readInt(u64, bytes[at..][0..8], .little);
            sum = asm ("crc32q %[word], %[sum]"
                : [sum] "=r" (-> u64),
                : [word] "r" (word),
                  [before] "0" (sum),
            );
        }
        return tail(&CASTAGNOLI, @truncate(sum), bytes[at..]);
    }
    return byTables(&CASTAGNOLI, bytes);
}

pub fn crc32(bytes: []const u8) u32 {
    return byTables(&ISO_3309, bytes);
}

fn byTables(tables: *const Tables, bytes: []const u8) u32 {
    var at: usize = 0;
    var sum: u32 = 0xFFFF_FFFF;
    while (bytes.len - at >= 8) : (at += 8) {
        const word = std.mem.readInt(u64, bytes[at..][0..8], .little) ^ sum;
        sum = 0;
        inline for (0..8) |index| sum ^= tables[7 - index][@as(u8, @truncate(word >> (8 * index)))];
    }
    return tail(tables, sum, bytes[at..]);
}

fn tail(tables: *const Tables, start: u32, bytes: []const u8) u32 {
    var sum = start;
    for (bytes) |byte| sum = sum >> 8 ^ tables[0][@as(u8, @truncate(sum)) ^ byte];
    return ~sum;
}
