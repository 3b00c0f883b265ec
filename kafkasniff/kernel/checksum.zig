//! CRC-32C (Castagnoli, RFC 3720 appendix B.4), with the processor's instruction if it has one, and the CRC-32 of
//! messages of magic 0 and 1 (ISO 3309, as in gzip).

const builtin = @import("builtin");
const std = @import("std");

const HAS_INSTRUCTION = builtin.cpu.arch == .x86_64 and builtin.cpu.has(.x86, .crc32);

const Tables = [8][256]u32;

const CASTAGNOLI = tablesOf(0x82F6_3B78);
const ISO_3309 = tablesOf(0xEDB8_8320);

/// Tables for eight bytes at a time; `polynomial` is reversed.
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

/// Bytes of each part of a parallel sum. The instruction takes three cycles, and one can start in each of them.
const PART = 512;

/// The sum after `PART` further zero bytes, by the bytes of the sum.
const BEHIND_PART = behind: {
    @setEvalBranchQuota(100_000);
    // The contribution of each bit after one zero byte; each later step doubles the number of zero bytes.
    var bits: [32]u32 = undefined;
    for (&bits, 0..) |*bit, index| {
        const sum = @as(u32, 1) << index;
        bit.* = sum >> 8 ^ CASTAGNOLI[0][sum & 0xFF];
    }
    var size = 1;
    while (size < PART) : (size *= 2) {
        var twice: [32]u32 = undefined;
        for (&twice, bits) |*bit, once| bit.* = moved(&bits, once);
        bits = twice;
    }
    var tables: [4][256]u32 = undefined;
    for (0..4) |place| {
        for (0..256) |value| tables[place][value] = moved(&bits, value << (8 * place));
    }
    break :behind tables;
};

fn moved(bits: *const [32]u32, sum: u32) u32 {
    var found: u32 = 0;
    var rest = sum;
    while (rest != 0) : (rest &= rest - 1) found ^= bits[@ctz(rest)];
    return found;
}

inline fn behindPart(sum: u64) u64 {
    var found: u32 = 0;
    inline for (0..4) |place| found ^= BEHIND_PART[place][@as(u8, @truncate(sum >> (8 * place)))];
    return found;
}

pub fn crc32c(bytes: []const u8) u32 {
    if (!HAS_INSTRUCTION) return byTables(&CASTAGNOLI, bytes);
    var at: usize = 0;
    var sum: u64 = 0xFFFF_FFFF;
    while (bytes.len - at >= 3 * PART) : (at += 3 * PART) {
        const parts = bytes[at..][0 .. 3 * PART];
        var second: u64 = 0;
        var third: u64 = 0;
        var place: usize = 0;
        while (place < PART) : (place += 8) {
            sum = withWord(sum, parts[place..][0..8]);
            second = withWord(second, parts[PART + place ..][0..8]);
            third = withWord(third, parts[2 * PART + place ..][0..8]);
        }
        sum = behindPart(behindPart(sum) ^ second) ^ third;
    }
    while (bytes.len - at >= 8) : (at += 8) sum = withWord(sum, bytes[at..][0..8]);
    return tail(&CASTAGNOLI, @truncate(sum), bytes[at..]);
}

inline fn withWord(sum: u64, word: *const [8]u8) u64 {
    return asm ("crc32q %[word], %[sum]"
        : [sum] "=r" (-> u64),
        : [word] "r" (std.mem.readInt(u64, word, .little)),
          [before] "0" (sum),
    );
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
