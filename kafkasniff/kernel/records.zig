//! Record batches of magic 2 as JSON (`org.apache.kafka.common.record.DefaultRecordBatch`, `DefaultRecord`).
//!
//! The specification is `kafka/records.py`, `record_batch.py` and `record_list.py`: what these report as a problem, or
//! what interpreters may add something to, is `Odd` here.

const std = @import("std");
const calls = @import("call.zig");
const crc32c = @import("checksum.zig").crc32c;
const output = @import("output.zig");
const reading = @import("reader.zig");

const Error = reading.Error;
const Reader = reading.Reader;
const Output = output.Output;

const HEADER_SIZE = 61;
/// Bytes in front of what a batch's length counts.
const ENTRY = 12;
const COMMON_SIZE = 17;
const CRC_START = 21;
const MIN_LENGTH = HEADER_SIZE - ENTRY;
/// As `records.MAX_BATCH_LENGTH` and `message_set.MIN_SIZES[0]`.
const MAX_BATCH_LENGTH = 1 << 30;
const MIN_LEGACY_LENGTH = 14;
/// As `record_list.MAX_RECORD_RATE` and `MAX_HEADER_RATE`.
const MAX_RECORD_RATE = 4;
const MAX_HEADER_RATE = 16;

const LOG_APPEND_TIME = 0x08;
const TRANSACTIONAL = 0x10;
const CONTROL = 0x20;
const DELETE_HORIZON = 0x40;
const UNKNOWN_BITS = 0xFF80;

const CODECS = [_][]const u8{ "\"none\"", "\"gzip\"", "\"snappy\"", "\"lz4\"", "\"zstd\"" };

/// What the `records` fields of one message share.
pub const Account = struct {
    call: *calls.Call,
    /// Records and headers that the message may still hold.
    left: u64,
    /// Batches of `call.batches` that were used.
    used: u64 = 0,
    /// Compressed batches are wanted: what is written is of no use.
    wanting: bool = false,
};

/// The field `bytes`, which begins at `base` of the caller's data.
pub fn field(out: *Output, bytes: []const u8, base: usize, account: *Account) Error!void {
    try out.put("{\"batches\":[");
    var at: usize = 0;
    var first = true;
    while (bytes.len - at >= COMMON_SIZE) {
        if (bytes[at + 16] != 2) return error.Odd;
        const length = std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big);
        if (length < MIN_LENGTH or length > MAX_BATCH_LENGTH) return error.Odd;
        const size = ENTRY + @as(usize, @intCast(length));
        if (size > bytes.len - at) break;
        if (!first) try out.byte(',');
        first = false;
        try batch(out, bytes[at..][0..size], base + at, account);
        at += size;
    }
    const rest = bytes.len - at;
    if (rest >= ENTRY and rest < COMMON_SIZE) {
        const length = std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big);
        if (length < MIN_LEGACY_LENGTH or length > MAX_BATCH_LENGTH) return error.Odd;
    }
    if (rest > 0) account.call.truncated = rest;
    try out.put("],\"truncated_bytes\":");
    try out.integer(@intCast(rest));
    try out.byte('}');
}

fn number(out: *Output, comptime name: []const u8, value: i64) Error!void {
    try out.put("," ++ name ++ ":");
    try out.integer(value);
}

fn batch(out: *Output, bytes: []const u8, position: usize, account: *Account) Error!void {
    var reader = Reader{ .bytes = bytes };
    const base_offset = try reader.int(i64);
    const batch_length = try reader.int(i32);
    const leader_epoch = try reader.int(i32);
    _ = try reader.byte();
    const crc = try reader.int(u32);
    const attributes = try reader.int(u16);
    const last_offset_delta = try reader.int(i32);
    const base_timestamp = try reader.int(i64);
    const max_timestamp = try reader.int(i64);
    const producer_id = try reader.int(i64);
    const producer_epoch = try reader.int(i16);
    const base_sequence = try reader.int(i32);
    const count = try reader.int(i32);
    const codec = attributes & 7;
    // What is wrong is reported by Python, and so is what a control record says.
    if (attributes & (UNKNOWN_BITS | CONTROL) != 0 or codec >= CODECS.len) return error.Odd;
    if (crc32c(bytes[CRC_START..]) != crc) return error.Odd;

    try out.put("{\"base_offset\":");
    try out.integer(base_offset);
    try number(out, "\"batch_length\"", batch_length);
    try number(out, "\"partition_leader_epoch\"", leader_epoch);
    try out.put(",\"magic\":2");
    try number(out, "\"crc\"", crc);
    try out.put(",\"crc_ok\":true,\"compression\":");
    try out.put(CODECS[codec]);
    try out.put(if (attributes & LOG_APPEND_TIME != 0)
        ",\"timestamp_type\":\"LogAppendTime\",\"transactional\":"
    else
        ",\"timestamp_type\":\"CreateTime\",\"transactional\":");
    try out.boolean(attributes & TRANSACTIONAL != 0);
    try out.put(",\"control\":false");
    try number(out, "\"last_offset_delta\"", last_offset_delta);
    try number(out, "\"base_timestamp\"", base_timestamp);
    try number(out, "\"max_timestamp\"", max_timestamp);
    try number(out, "\"producer_id\"", producer_id);
    try number(out, "\"producer_epoch\"", producer_epoch);
    try number(out, "\"base_sequence\"", base_sequence);
    try number(out, "\"record_count\"", count);
    if (attributes & DELETE_HORIZON != 0) try number(out, "\"_delete_horizon\"", base_timestamp);
    if (account.call.wants.records == .full) {
        try out.put(",\"records\":[");
        var payload: []const u8 = bytes[HEADER_SIZE..];
        // Compaction can leave a header without records, where there is nothing to decompress.
        if (codec != 0 and !(payload.len == 0 and count == 0)) {
            payload = try decompressed(account, position, bytes.len, codec, count) orelse return;
        }
        const read = try records(out, payload, .{
            .offset = base_offset,
            .timestamp = base_timestamp,
            .append = if (attributes & LOG_APPEND_TIME != 0) max_timestamp else null,
            .wire = bytes.len,
        }, account);
        if (count < 0 or read != @as(u64, @intCast(count))) return error.Odd;
        try out.byte(']');
    }
    try out.byte('}');
}

/// The records of a compressed batch; null where they are wanted from the caller.
fn decompressed(account: *Account, position: usize, size: usize, codec: u32, count: i32) Error!?[]const u8 {
    const call = account.call;
    if (count < 0) return error.Odd;
    if (call.batches_given > 0) {
        if (account.used >= call.batches_given) return error.Odd;
        const given = call.batches[account.used];
        account.used += 1;
        const begin = given.records orelse return error.Odd;
        if (given.position != position) return error.Odd;
        return begin[0..given.size];
    }
    if (call.batches_wanted >= call.batches_size) return error.Odd;
    account.wanting = true;
    call.batches[call.batches_wanted] = .{
        .position = position,
        .end = position + size,
        .codec = codec,
        .count = @intCast(count),
        .records = null,
        .size = 0,
    };
    call.batches_wanted += 1;
    return null;
}

const Base = struct {
    offset: i64,
    timestamp: i64,
    /// That of all records, where the broker set it.
    append: ?i64,
    /// Bytes of the batch on the wire.
    wire: u64,
};

/// The records in `bytes`, which they fill; returns how many they are.
fn records(out: *Output, bytes: []const u8, base: Base, account: *Account) Error!u64 {
    const most = @min(account.left, MAX_RECORD_RATE * base.wire);
    const most_headers = @min(account.left, MAX_HEADER_RATE * base.wire);
    const call = account.call;
    var reader = Reader{ .bytes = bytes };
    var count: u64 = 0;
    var headers: u64 = 0;
    var odd_start = false;
    while (reader.left() > 0) {
        if (count == most) return error.Odd;
        const length = try reader.zigzag32();
        if (length <= 0 or length > reader.left()) return error.Odd;
        // The record alone, so that none of its fields can run past its end.
        var record = Reader{ .bytes = try reader.take(@intCast(length)) };
        _ = try record.byte(); // attributes, of which none is defined
        const timestamp = base.append orelse base.timestamp +% try record.zigzag64();
        if (base.append != null) _ = try record.zigzag64();
        const offset = base.offset +% try record.zigzag32();
        const key = try nullable(&record);
        const value = try nullable(&record);
        const first = (key != null and key.?.len > 0 and key.?[0] == 0) or
            (value != null and value.?.len > 0 and value.?[0] == 0);
        // The framing of a schema registry may be in front of the first or the last key or value.
        if (first and count == 0) return error.Odd;
        odd_start = first;
        if (key) |bytes_of_key| {
            if (holdsMark(bytes_of_key, call.marks[0..call.marks_size])) return error.Odd;
        }
        if (count > 0) try out.byte(',');
        count += 1;
        try out.put("{\"offset\":");
        try out.integer(offset);
        try out.put(",\"timestamp\":");
        try out.integer(timestamp);
        try out.put(",\"key\":");
        try optional(out, key, call.wants.form);
        try out.put(",\"value\":");
        try optional(out, value, call.wants.form);
        try out.put(",\"headers\":[");
        const of_record = try record.zigzag32();
        if (of_record != 0) {
            if (of_record < 0 or of_record > record.left() / 2) return error.Odd;
            headers += @intCast(of_record);
            if (headers > most_headers) return error.Odd;
            for (0..@intCast(of_record)) |index| {
                const name = try nullable(&record) orelse return error.Odd;
                if (isListed(name, call.headers[0..call.headers_size])) return error.Odd;
                try out.put(if (index > 0) ",{\"key\":" else "{\"key\":");
                try out.string(name);
                try out.put(",\"value\":");
                try optional(out, try nullable(&record), call.wants.form);
                try out.byte('}');
            }
        }
        if (record.left() > 0) return error.Odd;
        try out.put("]}");
    }
    if (odd_start) return error.Odd;
    account.left -= @max(count, headers);
    call.records += @max(count, headers);
    return count;
}

/// Bytes behind their length; null where it is -1.
inline fn nullable(record: *Reader) Error!?[]const u8 {
    const length = try record.zigzag32();
    if (length < 0) {
        if (length != -1) return error.Odd;
        return null;
    }
    return try record.take(@intCast(length));
}

inline fn optional(out: *Output, value: ?[]const u8, form: output.Form) Error!void {
    if (value) |bytes| try out.binary(bytes, form) else try out.put("null");
}

/// Whether one of a list of texts, each behind its length, is `name`.
fn isListed(name: []const u8, list: []const u8) bool {
    var at: usize = 0;
    while (at < list.len) {
        const size = list[at];
        if (size > list.len - at - 1) return false;
        if (std.mem.eql(u8, list[at + 1 ..][0..size], name)) return true;
        at += 1 + @as(usize, size);
    }
    return false;
}

/// Whether one of such a list is in `key`.
fn holdsMark(key: []const u8, list: []const u8) bool {
    var at: usize = 0;
    while (at < list.len) {
        const size = list[at];
        if (size == 0 or size > list.len - at - 1) return false;
        const mark = list[at + 1 ..][0..size];
        if (key.len >= size) {
            for (0..key.len - size + 1) |begin| {
                if (key[begin] == mark[0] and std.mem.eql(u8, key[begin..][0..size], mark)) return true;
            }
        }
        at += 1 + @as(usize, size);
    }
    return false;
}
