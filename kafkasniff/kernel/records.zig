//! Record batches of magic 2 (`org.apache.kafka.common.record.DefaultRecordBatch`, `DefaultRecord`).
//!
//! The specification is `kafka/records.py`, `record_batch.py` and `record_list.py`: what these report as a problem is
//! `Odd` here. So is what interpreters may add something to, where the output is final (JSON).

const std = @import("std");
const calls = @import("call.zig");
const crc32c = @import("checksum.zig").crc32c;
const reading = @import("reader.zig");

const Error = reading.Error;
const Reader = reading.Reader;

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

const CODECS = [_][]const u8{ "none", "gzip", "snappy", "lz4", "zstd" };

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
pub fn field(out: anytype, bytes: []const u8, base: usize, account: *Account) Error!void {
    const map = try out.openMap(2, 0);
    try out.name("batches", true);
    const list = try out.openList();
    var at: usize = 0;
    var count: usize = 0;
    while (bytes.len - at >= COMMON_SIZE) {
        if (bytes[at + 16] != 2) return error.Odd;
        const length = std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big);
        if (length < MIN_LENGTH or length > MAX_BATCH_LENGTH) return error.Odd;
        const size = ENTRY + @as(usize, @intCast(length));
        if (size > bytes.len - at) break;
        try out.element(count == 0);
        count += 1;
        try batch(out, bytes[at..][0..size], base + at, account);
        at += size;
    }
    const rest = bytes.len - at;
    if (rest >= ENTRY and rest < COMMON_SIZE) {
        const length = std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big);
        if (length < MIN_LEGACY_LENGTH or length > MAX_BATCH_LENGTH) return error.Odd;
    }
    if (rest > 0) account.call.truncated = rest;
    try out.closeList(list, count);
    try out.name("truncated_bytes", false);
    try out.integer(@intCast(rest));
    try out.closeMap(map, 2);
}

fn number(out: anytype, comptime name: []const u8, value: i64) Error!void {
    try out.name(name, false);
    try out.integer(value);
}

fn batch(out: anytype, bytes: []const u8, position: usize, account: *Account) Error!void {
    const Out = @TypeOf(out.*);
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
    const wanted = account.call.wants.records;
    // What is wrong is reported by Python, and so is what a control record says.
    if (attributes & UNKNOWN_BITS != 0 or codec >= CODECS.len) return error.Odd;
    if (attributes & CONTROL != 0 and (Out.is_final or wanted == .full)) return error.Odd;
    if (codec != 0 and !Out.is_final and wanted == .full) return error.Odd;
    if (crc32c(bytes[CRC_START..]) != crc) return error.Odd;

    const held: ?usize = if (!Out.is_final and wanted == .columns) try out.openHeld(position, bytes.len) else null;
    const has_horizon = attributes & DELETE_HORIZON != 0;
    const members = 17 + @as(usize, @intFromBool(has_horizon)) + @intFromBool(wanted == .full);
    const map = try out.openMap(members, 0);
    try out.name("base_offset", true);
    try out.integer(base_offset);
    try number(out, "batch_length", batch_length);
    try number(out, "partition_leader_epoch", leader_epoch);
    try number(out, "magic", 2);
    try number(out, "crc", crc);
    try flag(out, "crc_ok", true);
    try out.name("compression", false);
    switch (codec) {
        inline 0...CODECS.len - 1 => |known| try out.word(CODECS[known]),
        else => unreachable,
    }
    try out.name("timestamp_type", false);
    if (attributes & LOG_APPEND_TIME != 0) try out.word("LogAppendTime") else try out.word("CreateTime");
    try flag(out, "transactional", attributes & TRANSACTIONAL != 0);
    try flag(out, "control", attributes & CONTROL != 0);
    try number(out, "last_offset_delta", last_offset_delta);
    try number(out, "base_timestamp", base_timestamp);
    try number(out, "max_timestamp", max_timestamp);
    try number(out, "producer_id", producer_id);
    try number(out, "producer_epoch", producer_epoch);
    try number(out, "base_sequence", base_sequence);
    try number(out, "record_count", count);
    if (has_horizon) try number(out, "_delete_horizon", base_timestamp);
    if (wanted == .full) {
        var payload: []const u8 = bytes[HEADER_SIZE..];
        // Compaction can leave a header without records, where there is nothing to decompress.
        if (codec != 0 and !(payload.len == 0 and count == 0)) {
            payload = try decompressed(account, position, bytes.len, codec, count) orelse return;
        }
        try out.name("records", false);
        const list = try out.openList();
        const read = try records(out, payload, .{
            .offset = base_offset,
            .timestamp = base_timestamp,
            .append = max_timestamp,
            .appends = @intFromBool(attributes & LOG_APPEND_TIME != 0),
            .wire = bytes.len,
        }, account);
        if (count < 0 or read != @as(u64, @intCast(count))) return error.Odd;
        try out.closeList(list, @intCast(read));
    }
    try out.closeMap(map, members);
    if (held) |mark| try out.closeExtension(mark, .held);
}

inline fn flag(out: anytype, comptime name: []const u8, value: bool) Error!void {
    try out.name(name, false);
    try out.boolean(value);
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

/// The records in `bytes`, which they fill; returns how many they are.
pub fn records(out: anytype, bytes: []const u8, base: calls.Base, account: *Account) Error!u64 {
    const Out = @TypeOf(out.*);
    const most = @min(account.left, MAX_RECORD_RATE *| base.wire);
    const most_headers = @min(account.left, MAX_HEADER_RATE *| base.wire);
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
        const delta = try record.zigzag64();
        const timestamp = if (base.appends != 0) base.append else base.timestamp +% delta;
        const offset = base.offset +% try record.zigzag32();
        const key = try nullable(&record);
        const value = try nullable(&record);
        odd_start = beginsWithZero(key) or beginsWithZero(value);
        // The framing of a schema registry may be in front of the first or the last key or value.
        if (odd_start and count == 0) try lookAt(Out, call);
        if (key) |bytes_of_key| {
            if (holdsMark(bytes_of_key, call.marks[0..call.marks_size])) try lookAt(Out, call);
        }
        try out.element(count == 0);
        count += 1;
        const begin = out.at;
        const map = try out.openMap(5, 0);
        try out.name("offset", true);
        try out.integer(offset);
        try number(out, "timestamp", timestamp);
        try out.name("key", false);
        try optional(out, key);
        try out.name("value", false);
        try optional(out, value);
        try out.name("headers", false);
        const of_record = try record.zigzag32();
        if (of_record < 0 or of_record > record.left() / 2) return error.Odd;
        headers += @intCast(of_record);
        if (headers > most_headers) return error.Odd;
        const listed = try headersOf(out, &record, @intCast(of_record), call);
        if (record.left() > 0) return error.Odd;
        try out.closeMap(map, 5);
        if (listed) {
            if (Out.is_final) return error.Odd;
            try out.wrap(begin, .headed);
        }
    }
    if (odd_start) try lookAt(Out, call);
    account.left -= @max(count, headers);
    call.records += @max(count, headers);
    return count;
}

/// The headers of a record; whether Python has to read one of them.
inline fn headersOf(out: anytype, record: *Reader, count: usize, call: *const calls.Call) Error!bool {
    var listed = false;
    _ = try out.openArray(count);
    for (0..count) |index| {
        const name = try nullable(record) orelse return error.Odd;
        if (isListed(name, call.headers[0..call.headers_size])) listed = true;
        try out.element(index == 0);
        const map = try out.openMap(2, 0);
        try out.name("key", true);
        try out.string(name);
        try out.name("value", false);
        try optional(out, try nullable(record));
        try out.closeMap(map, 2);
    }
    try out.closeArray();
    return listed;
}

inline fn beginsWithZero(bytes: ?[]const u8) bool {
    const found = bytes orelse return false;
    return found.len > 0 and found[0] == 0;
}

/// Interpreters have to look at these records: where they cannot any more, Python has to read them.
inline fn lookAt(comptime Out: type, call: *calls.Call) Error!void {
    if (Out.is_final) return error.Odd;
    call.looked_at = 1;
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

inline fn optional(out: anytype, value: ?[]const u8) Error!void {
    if (value) |bytes| try out.binary(bytes) else try out.nothing();
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
