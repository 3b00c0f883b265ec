//! Message sets: the formats before record batches, magic 0 and 1 (`org.apache.kafka.common.record.LegacyRecord`).
//!
//! The specification is `kafka/records/batches.py`: its problems are `Odd` here. So are nested wrappers, which no current
//! writer makes.

const std = @import("std");
const calls = @import("call.zig");
const crc32 = @import("checksum.zig").crc32;
const reading = @import("reader.zig");
const accounts = @import("record_account.zig");
const record_facts = @import("record_facts.zig");
const record_fields = @import("records.zig");

const Account = accounts.Account;
const Error = reading.Error;

/// Bytes before those that a message's size counts, and the minimum size, by magic.
const ENTRY = 12;
pub const MIN_SIZES = [_]i32{ 14, 22 };
/// Bytes before a timestamp or key.
const HEAD_SIZE = 18;
const CRC_END = 16;
const ATTRIBUTES_AT = 17;

const LOG_APPEND_TIME = 0x08;

const Message = struct {
    offset: i64,
    size: i32,
    crc: u32,
    magic: u8,
    attributes: u8,
    timestamp: ?i64,
    key: ?[]const u8,
    value: ?[]const u8,

    fn codec(self: *const Message) u8 {
        return self.attributes & 7;
    }
};

/// Asks for the decompressed content of the outermost message, which fills `bytes`.
pub fn want(bytes: []const u8, position: usize, account: *Account) Error!void {
    if (bytes[ATTRIBUTES_AT] & 7 == 0) return;
    const one = try read(bytes, false);
    if (one.codec() >= record_fields.CODECS.len) return error.Odd;
    const value = one.value orelse return error.Odd;
    const end = position + bytes.len;
    try accounts.ask(account, .{
        .position = end - value.len,
        .end = end,
        .codec = one.codec(),
        .magic = one.magic,
        .count = 0,
    });
}

/// Writes the outermost message, which fills `bytes` and begins at `position` of the caller's data, with its whole
/// content.
pub fn message(out: anytype, bytes: []const u8, position: usize, account: *Account) Error!void {
    const one = try read(bytes, true);
    const known: u8 = if (one.magic == 0) 0x07 else 0x07 | LOG_APPEND_TIME;
    if (one.attributes & ~known != 0 or one.codec() >= record_fields.CODECS.len) return error.Odd;
    const full = account.call.wants.records == .full;
    const most = @min(account.left, record_fields.MAX_RECORD_RATE * bytes.len);

    var inside: Set = .{ .bytes = "", .count = 1, .last_offset = one.offset };
    if (one.codec() != 0) {
        if (one.key != null) return error.Odd;
        const value = one.value orelse return error.Odd;
        const unpacked = try accounts.decompressed(account, position + bytes.len - value.len);
        inside = try setOf(unpacked, one.magic, most);
    } else if (most == 0) return error.Odd;

    const members = 7 + 2 * @as(usize, one.magic) + @intFromBool(full);
    const map = try out.openMap(members, 0);
    try out.name("base_offset", true);
    try out.integer(one.offset);
    try record_fields.number(out, "batch_length", one.size);
    try record_fields.number(out, "magic", one.magic);
    try record_fields.number(out, "crc", one.crc);
    try record_fields.flag(out, "crc_ok", true);
    try record_fields.compression(out, one.codec());
    const appends = one.attributes & LOG_APPEND_TIME != 0;
    if (one.timestamp) |timestamp| {
        try record_fields.timestampType(out, appends);
        try record_fields.number(out, "max_timestamp", timestamp);
    }
    try record_fields.number(out, "record_count", @intCast(inside.count));
    if (full) {
        try out.name("records", false);
        const list = try out.openList();
        if (one.codec() == 0) {
            try record(out, &one, one.offset, one.timestamp, true, account);
        } else {
            // KIP-31: offsets inside count from 0, and the wrapper has the absolute offset of the last. Producers may
            // leave the wrapper's offset at 0: then the offsets inside are absolute.
            const base: i128 = if (one.magic == 1) @max(@as(i128, one.offset) - inside.last_offset, 0) else 0;
            var at: usize = 0;
            while (at < inside.bytes.len) {
                const inner = try read(try next(inside.bytes, at), false);
                const offset: i64 = @truncate(base + inner.offset);
                const timestamp = if (appends) one.timestamp else inner.timestamp;
                try record(out, &inner, offset, timestamp, at == 0, account);
                at += ENTRY + @as(usize, @intCast(inner.size));
            }
        }
        try out.closeList(list, inside.count);
    }
    try out.closeMap(map, members);
    account.left -= inside.count;
    account.call.records += inside.count;
}

/// The content of a wrapper.
const Set = struct {
    bytes: []const u8,
    count: usize,
    last_offset: i64,
};

/// Decodes the set that fills `bytes`. This is a separate pass because the count and the last offset are written before
/// the messages.
fn setOf(bytes: []const u8, magic: u8, most: u64) Error!Set {
    var found = Set{ .bytes = bytes, .count = 0, .last_offset = 0 };
    var at: usize = 0;
    while (at < bytes.len) {
        if (found.count == most) return error.Odd;
        const inner = try read(try next(bytes, at), true);
        if (inner.magic != magic or inner.codec() != 0) return error.Odd;
        found.count += 1;
        found.last_offset = inner.offset;
        at += ENTRY + @as(usize, @intCast(inner.size));
    }
    if (found.count == 0) return error.Odd;
    return found;
}

/// The bytes of the message at `at`.
fn next(bytes: []const u8, at: usize) Error![]const u8 {
    const left = bytes[at..];
    if (left.len < HEAD_SIZE) return error.Odd;
    const size = std.mem.readInt(i32, left[8..12], .big);
    const magic = left[16];
    if (magic > 1 or size < MIN_SIZES[magic] or size > left.len - ENTRY) return error.Odd;
    return left[0 .. ENTRY + @as(usize, @intCast(size))];
}

/// Decodes the message that fills `bytes`. `checks`: its checksum must be right.
fn read(bytes: []const u8, checks: bool) Error!Message {
    var reader = reading.Reader{ .bytes = bytes };
    var found: Message = undefined;
    found.offset = try reader.int(i64);
    found.size = try reader.int(i32);
    found.crc = try reader.int(u32);
    found.magic = try reader.byte();
    found.attributes = try reader.byte();
    if (checks and crc32(bytes[CRC_END..]) != found.crc) return error.Odd;
    found.timestamp = if (found.magic == 1) try reader.int(i64) else null;
    found.key = try nullable(&reader);
    found.value = try nullable(&reader);
    if (reader.left() > 0) return error.Odd;
    return found;
}

/// Bytes with an int32 length prefix; null if it is -1.
fn nullable(reader: *reading.Reader) Error!?[]const u8 {
    const length = try reader.int(i32);
    if (length < 0) {
        if (length != -1) return error.Odd;
        return null;
    }
    return try reader.take(@intCast(length));
}

fn record(
    out: anytype,
    one: *const Message,
    offset: i64,
    timestamp: ?i64,
    is_first: bool,
    account: *Account,
) Error!void {
    try account.look(out, one.key, one.value, false);
    try out.element(is_first);
    const map = try out.openMap(4, 0);
    try out.name("offset", true);
    try out.integer(offset);
    try out.name("timestamp", false);
    if (timestamp) |known| try out.integer(known) else try out.nothing();
    try out.name("key", false);
    try record_fields.optional(out, one.key);
    const is_tree = @TypeOf(out.*).is_tree;
    if (is_tree) try record_facts.schemaIds(out, one.key, null, &account.framed);
    try out.name("value", false);
    try record_fields.optional(out, one.value);
    try record_facts.schemaIds(out, if (is_tree) null else one.key, one.value, &account.framed);
    try out.closeMap(map, 4);
}
