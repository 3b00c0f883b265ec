//! `records` fields, and their batches of magic 2 (`org.apache.kafka.common.record.DefaultRecordBatch` and
//! `DefaultRecord`).
//!
//! The specification is `kafka/records/record_sets.py`, `batches.py` and `record_list.py`: their problems are `Odd` here. In
//! final output (JSON), so are records that interpreters may add something to.

const std = @import("std");
const calls = @import("call.zig");
const crc32c = @import("checksum.zig").crc32c;
const accounts = @import("record_account.zig");
const control_of = @import("control.zig");
const message_set = @import("message_set.zig");
const reading = @import("reader.zig");
const marks = @import("record_marks.zig");
const record_facts = @import("record_facts.zig");

const Account = accounts.Account;
const Error = reading.Error;
const Reader = reading.Reader;
const Traces = record_facts.Traces;

pub const HEADER_SIZE = 61;
/// Bytes before those that a batch's length counts.
pub const ENTRY = 12;
pub const COMMON_SIZE = 17;
pub const MAGIC_AT = 16;
/// Position of the byte of the attributes that has the codec.
const CODEC_AT = 22;
pub const CRC_START = 21;
/// Minimum values of the length, by magic.
const MIN_LENGTHS = message_set.MIN_SIZES ++ [_]i32{HEADER_SIZE - ENTRY};
/// As `records.MAX_BATCH_LENGTH`.
const MAX_BATCH_LENGTH = 1 << 30;
/// As `record_list.MAX_RECORD_RATE` and `MAX_HEADER_RATE`.
pub const MAX_RECORD_RATE = 4;
pub const MAX_HEADER_RATE = 16;

pub const LOG_APPEND_TIME = 0x08;
pub const TRANSACTIONAL = 0x10;
pub const CONTROL = 0x20;
const DELETE_HORIZON = 0x40;
pub const UNKNOWN_BITS = 0xFF80;

pub const CODECS = [_][]const u8{ "none", "gzip", "snappy", "lz4", "zstd" };

/// Writes the field `bytes`, which begins at `base` of the caller's data.
pub fn field(out: anytype, bytes: []const u8, base: usize, account: *Account) Error!void {
    if (!@TypeOf(out.*).is_final) return content(out, bytes, base, account);
    const mark = out.save();
    const call = account.call;
    if (call.batches_given == 0 and call.wants.records == .full) try want(bytes, base, account);
    if (account.wanting) return;
    const counted = call.records;
    account.framing = .{ .{}, .{} };
    account.framed = .{ false, false };
    const before = account.*;
    try content(out, bytes, base, account);
    const framed = [2]bool{ account.framing[0].holds(), account.framing[1].holds() };
    if (!framed[0] and !framed[1]) return;
    if (account.may_be_internal) return error.Odd;
    // Whether all values are framed is known only at the end, so the field is written a second time.
    out.restore(mark);
    account.* = before;
    account.framed = framed;
    call.records = counted;
    try content(out, bytes, base, account);
}

/// Asks for the compressed batches of a field before anything is written in vain.
fn want(bytes: []const u8, base: usize, account: *Account) Error!void {
    var batches = Batches{ .bytes = bytes };
    while (try batches.next()) |found| {
        const position = base + batches.at - found.len;
        if (found[MAGIC_AT] < 2) {
            try message_set.want(found, position, account);
            continue;
        }
        const codec: u8 = found[CODEC_AT] & 7;
        const count = std.mem.readInt(i32, found[HEADER_SIZE - 4 ..][0..4], .big);
        if (codec == 0 or isEmpty(found, count)) continue;
        if (codec >= CODECS.len or count < 0) return error.Odd;
        try accounts.ask(account, .{
            .position = position,
            .end = position + found.len,
            .codec = codec,
            .magic = 2,
            .count = @intCast(count),
        });
    }
}

/// Compaction can leave a header without records; then there is nothing to decompress.
fn isEmpty(bytes: []const u8, count: i32) bool {
    return bytes.len == HEADER_SIZE and count == 0;
}

/// Iterates over the whole batches of a field. Only their sizes were checked.
pub const Batches = struct {
    bytes: []const u8,
    at: usize = 0,

    pub fn next(self: *Batches) Error!?[]const u8 {
        const left = self.bytes[self.at..];
        if (left.len < COMMON_SIZE) {
            if (left.len < ENTRY) return null;
            const length = std.mem.readInt(i32, left[8..12], .big);
            return if (length < MIN_LENGTHS[0] or length > MAX_BATCH_LENGTH) error.Odd else null;
        }
        const magic = left[MAGIC_AT];
        if (magic > 2) return error.Odd;
        const length = std.mem.readInt(i32, left[8..12], .big);
        if (length < MIN_LENGTHS[magic] or length > MAX_BATCH_LENGTH) return error.Odd;
        const size = ENTRY + @as(usize, @intCast(length));
        if (size > left.len) return null;
        self.at += size;
        return left[0..size];
    }
};

fn content(out: anytype, bytes: []const u8, base: usize, account: *Account) Error!void {
    const is_final = @TypeOf(out.*).is_final;
    const map = try out.openMap(2, 0);
    try out.name("batches", true);
    const list = try out.openList();
    var batches = Batches{ .bytes = bytes };
    var count: usize = 0;
    while (try batches.next()) |found| {
        const position = base + batches.at - found.len;
        try out.element(count == 0);
        count += 1;
        if (found[MAGIC_AT] == 2) {
            try batch(out, found, position, account);
        } else {
            if (!is_final) return error.Odd;
            try message_set.message(out, found, position, account);
        }
        if (is_final) {
            account.framing[0].endBatch();
            account.framing[1].endBatch();
        }
    }
    const rest = bytes.len - batches.at;
    if (rest > 0) account.call.truncated = rest;
    try out.closeList(list, count);
    try out.name("truncated_bytes", false);
    try out.integer(@intCast(rest));
    try out.closeMap(map, 2);
}

pub fn number(out: anytype, comptime name: []const u8, value: i64) Error!void {
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
    const is_control = attributes & CONTROL != 0;
    // Python reports problems, and writes the content of control records in dicts.
    if (attributes & UNKNOWN_BITS != 0 or codec >= CODECS.len) return error.Odd;
    if (is_control and !Out.is_final and wanted == .full) return error.Odd;
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
    try compression(out, codec);
    try timestampType(out, attributes & LOG_APPEND_TIME != 0);
    try flag(out, "transactional", attributes & TRANSACTIONAL != 0);
    try flag(out, "control", is_control);
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
        if (codec != 0 and !isEmpty(bytes, count)) payload = try accounts.decompressed(account, position);
        try out.name("records", false);
        const list = try out.openList();
        const read = try records(out, payload, .{
            .offset = base_offset,
            .timestamp = base_timestamp,
            .append = max_timestamp,
            .appends = @intFromBool(attributes & LOG_APPEND_TIME != 0),
            .wire = bytes.len,
        }, is_control, account);
        if (count < 0 or read != @as(u64, @intCast(count))) return error.Odd;
        try out.closeList(list, @intCast(read));
    }
    try out.closeMap(map, members);
    if (held) |mark| try out.closeExtension(mark, .held);
}

pub inline fn flag(out: anytype, comptime name: []const u8, value: bool) Error!void {
    try out.name(name, false);
    try out.boolean(value);
}

/// Writes the name of a known codec.
pub fn compression(out: anytype, codec: usize) Error!void {
    try out.name("compression", false);
    switch (codec) {
        inline 0...CODECS.len - 1 => |known| try out.word(CODECS[known]),
        else => unreachable,
    }
}

pub fn timestampType(out: anytype, appends: bool) Error!void {
    try out.name("timestamp_type", false);
    if (appends) try out.word("LogAppendTime") else try out.word("CreateTime");
}

/// Writes the records that fill `bytes` and returns their number. `is_control`: they are in a control batch.
pub fn records(out: anytype, bytes: []const u8, base: calls.Base, is_control: bool, account: *Account) Error!u64 {
    const Out = @TypeOf(out.*);
    const most = @min(account.left, MAX_RECORD_RATE *| base.wire);
    const most_headers = @min(account.left, MAX_HEADER_RATE *| base.wire);
    const call = account.call;
    var reader = Reader{ .bytes = bytes };
    var count: u64 = 0;
    var headers: u64 = 0;
    var odd_start = false;
    var traces = Traces{};
    while (reader.left() > 0) {
        if (count == most) return error.Odd;
        const length = try reader.zigzag32();
        if (length <= 0 or length > reader.left()) return error.Odd;
        // A reader of this record alone, so that no field can extend past its end.
        var record = Reader{ .bytes = try reader.take(@intCast(length)) };
        _ = try record.byte(); // attributes, of which none is defined
        const delta = try record.zigzag64();
        const timestamp = if (base.appends != 0) base.append else base.timestamp +% delta;
        const offset = base.offset +% try record.zigzag32();
        const key = try nullable(&record);
        const value = try nullable(&record);
        if (Out.is_final) {
            try account.look(out, key, value, is_control);
        } else {
            odd_start = beginsWithZero(key) or beginsWithZero(value);
            // A schema registry framing may come before the first or the last key or value.
            if (odd_start and count == 0) call.looked_at = 1;
            if (key) |bytes_of_key| {
                if (marks.holdsMark(bytes_of_key, call.marks[0..call.marks_size])) call.looked_at = 1;
            }
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
        // Trees show what was decoded beside its field, JSON lines at the end.
        if (Out.is_tree and !is_control) try record_facts.schemaIds(out, key, null, &account.framed);
        try out.name("value", false);
        try optional(out, value);
        if (Out.is_tree and !is_control) try record_facts.schemaIds(out, null, value, &account.framed);
        try out.name("headers", false);
        const of_record = try record.zigzag32();
        if (of_record < 0 or of_record > record.left() / 2) return error.Odd;
        headers += @intCast(of_record);
        if (headers > most_headers) return error.Odd;
        traces.count = 0;
        const listed = try headersOf(out, &record, @intCast(of_record), call, &traces);
        if (record.left() > 0) return error.Odd;
        if (Out.is_final and out.hiding == null) {
            if (listed) return error.Odd;
            if (traces.count > 0) try record_facts.traceIds(out, &traces);
            if (!Out.is_tree and !is_control) try record_facts.schemaIds(out, key, value, &account.framed);
        }
        if (Out.is_final and is_control) try control_of.member(out, key, value, call);
        try out.closeMap(map, 5);
        if (listed and !Out.is_final) try out.wrap(begin, .headed);
    }
    if (odd_start) call.looked_at = 1;
    account.left -= @max(count, headers);
    call.records += @max(count, headers);
    return count;
}

/// Writes the headers of a record. Returns whether Python has to decode one of them. `traces`: those decoded here, if
/// any.
inline fn headersOf(
    out: anytype,
    record: *Reader,
    count: usize,
    call: *const calls.Call,
    traces: *Traces,
) Error!bool {
    const is_final = @TypeOf(out.*).is_final;
    var listed = false;
    _ = try out.openArray(count);
    for (0..count) |index| {
        const name = try nullable(record) orelse return error.Odd;
        const kind = marks.listedKind(name, call.headers[0..call.headers_size]);
        try out.element(index == 0);
        const map = try out.openMap(2, 0);
        try out.name("key", true);
        try out.string(name);
        try out.name("value", false);
        const value = try nullable(record);
        try optional(out, value);
        try out.closeMap(map, 2);
        if (kind) |found| {
            if (is_final and found != .other) traces.see(found, value) else listed = true;
        }
    }
    try out.closeArray();
    return listed;
}

inline fn beginsWithZero(bytes: ?[]const u8) bool {
    const found = bytes orelse return false;
    return found.len > 0 and found[0] == 0;
}

/// Bytes with a length prefix; null if it is -1.
inline fn nullable(record: *Reader) Error!?[]const u8 {
    const length = try record.zigzag32();
    if (length < 0) {
        if (length != -1) return error.Odd;
        return null;
    }
    return try record.take(@intCast(length));
}

/// A key, a value, or that of a header.
pub inline fn optional(out: anytype, value: ?[]const u8) Error!void {
    if (value) |bytes| try out.payload(bytes) else try out.nothing();
}
