//! The records of many batches as columns in Arrow's layout, in memory of the caller.
//!
//! The specification is `kafka/records/record_list.py` and `batches.py`. Each batch is first measured, which decodes all of
//! it and writes nothing. Then the batches are written to columns of the measured size. A batch with any error is `odd`
//! as a whole: Python decodes it and reports the problem. The bytes must not change between the two calls.

const std = @import("std");
const calls = @import("call.zig");
const crc32 = @import("checksum.zig").crc32;
const reading = @import("reader.zig");

const Error = reading.Error;
const Reader = reading.Reader;

/// `org.apache.kafka.common.record.RecordBatch.NO_TIMESTAMP` and `NO_SEQUENCE`.
const NO_TIMESTAMP = -1;
const NO_SEQUENCE = -1;
/// Bytes of a message before its CRC, and before the bytes that the CRC covers.
const ENTRY = 12;
const CHECKED = 16;
/// Minimum size of a message, by magic.
const MIN_MESSAGE = [_]usize{ ENTRY + 14, ENTRY + 22 };

/// The sizes of columns.
pub const Counts = extern struct {
    rows: u64 = 0,
    headers: u64 = 0,
    key_bytes: u64 = 0,
    value_bytes: u64 = 0,
    header_key_bytes: u64 = 0,
    header_value_bytes: u64 = 0,
};

pub const Found = packed struct(u32) {
    /// A key begins with one of the marks.
    marks: bool = false,
    /// The key of a header is in the list.
    headers: bool = false,
    rest: u30 = 0,
};

/// The records of one batch of magic 2, or the messages of a set of magic 0 or 1, decompressed.
pub const Batch = extern struct {
    records: ?[*]const u8,
    size: u64,
    /// The base of offsets and, in magic 2, of timestamps.
    base_offset: i64,
    base_timestamp: i64,
    /// The timestamp of all records if `appended` is 1.
    append_timestamp: i64,
    /// The most records of the batch, and the most headers of all its records together.
    most_records: u64,
    most_headers: u64,
    base_sequence: i32,
    magic: u8,
    appended: u8,
    spare: u16,

    // Results of measuring
    status: calls.Status,
    found: Found,
    counts: Counts,
    /// Offset of the last record, before `base_offset` is added.
    last_offset: i64,
};

/// A column of byte strings; a value is null if its bit is 0.
pub const Binary = extern struct {
    /// One more entry than there are values.
    offsets: [*]i32,
    data: [*]u8,
    /// One bit per value, initially 0.
    valid: [*]u8,
    size: u64,

    // Results
    used: u64,
    nulls: u64,

    fn begin(self: *Binary) void {
        self.used = 0;
        self.nulls = 0;
        self.offsets[0] = 0;
    }

    inline fn put(self: *Binary, index: usize, value: ?[]const u8) Error!void {
        if (value) |bytes| {
            if (bytes.len > self.size - self.used) return error.NoRoom;
            @memcpy(self.data[self.used..][0..bytes.len], bytes);
            self.used += bytes.len;
            setBit(self.valid, index);
        } else {
            self.nulls += 1;
        }
        // `size` fits into int32, which `write` ensures.
        self.offsets[index + 1] = @intCast(self.used);
    }
};

pub const Columns = extern struct {
    batches: [*]Batch,
    batches_size: u64,
    /// Prefixes of the record keys that Python looks at. Each entry: a uint8 length, the text.
    marks: [*]const u8,
    marks_size: u64,
    /// Keys of headers, in the same format.
    headers: [*]const u8,
    headers_size: u64,
    /// Milliseconds: earlier and later timestamps than these are null.
    first_time: i64,
    last_time: i64,

    // Room for rows and headers
    rows_size: u64,
    header_rows_size: u64,
    offset: [*]i64,
    /// Microseconds.
    timestamp: [*]i64,
    timestamp_valid: [*]u8,
    sequence: [*]i32,
    /// Number of headers before each row, and their total.
    header_offsets: [*]i32,
    key: Binary,
    value: Binary,
    header_key: Binary,
    header_value: Binary,

    // Results
    rows: u64,
    header_rows: u64,
    timestamp_nulls: u64,
};

const Row = struct {
    offset: i64,
    timestamp: i64,
    sequence: i32,
    key: ?[]const u8,
    value: ?[]const u8,
};

/// Measures all batches: how much each holds, and whether it is valid.
pub fn measure(columns: *Columns) void {
    for (columns.batches[0..columns.batches_size]) |*batch| {
        var meter = Meter{ .columns = columns };
        batch.found = .{};
        batch.counts = .{};
        batch.last_offset = 0;
        batch.status = .odd;
        read(batch, &meter) catch continue;
        batch.status = .done;
        batch.found = meter.found;
        batch.counts = meter.counts;
        batch.last_offset = meter.last_offset -% batch.base_offset;
    }
}

/// Writes the batches whose status is `done`, in order.
pub fn write(columns: *Columns) calls.Status {
    const most = std.math.maxInt(i32);
    if (columns.rows_size >= most or columns.header_rows_size >= most) return .misuse;
    inline for (.{ "key", "value", "header_key", "header_value" }) |name| {
        if (@field(columns, name).size > most) return .misuse;
        @field(columns, name).begin();
    }
    columns.rows = 0;
    columns.header_rows = 0;
    columns.timestamp_nulls = 0;
    columns.header_offsets[0] = 0;
    var writer = Writer{ .columns = columns };
    for (columns.batches[0..columns.batches_size]) |*batch| {
        if (batch.status != .done) continue;
        read(batch, &writer) catch |reason| return switch (reason) {
            error.Odd => .odd,
            error.NoRoom => .no_room,
        };
    }
    return .done;
}

/// Counts the decoded records.
const Meter = struct {
    columns: *const Columns,
    counts: Counts = .{},
    found: Found = .{},
    last_offset: i64 = 0,

    inline fn row(self: *Meter, one: Row) Error!void {
        self.counts.rows += 1;
        self.last_offset = one.offset;
        if (one.key) |key| {
            self.counts.key_bytes += key.len;
            const marks = self.columns.marks[0..self.columns.marks_size];
            if (!self.found.marks and key.len > 0 and beginsWithListed(key, marks)) self.found.marks = true;
        }
        if (one.value) |value| self.counts.value_bytes += value.len;
    }

    inline fn header(self: *Meter, name: []const u8, value: ?[]const u8) Error!void {
        if (!std.unicode.utf8ValidateSlice(name)) return error.Odd;
        self.counts.headers += 1;
        self.counts.header_key_bytes += name.len;
        if (value) |bytes| self.counts.header_value_bytes += bytes.len;
        if (!self.found.headers and isListed(name, self.columns.headers[0..self.columns.headers_size])) {
            self.found.headers = true;
        }
    }

    inline fn end(_: *Meter) void {}
};

/// Writes the decoded records to the columns.
const Writer = struct {
    columns: *Columns,

    inline fn row(self: *Writer, one: Row) Error!void {
        const columns = self.columns;
        const at = columns.rows;
        if (at >= columns.rows_size) return error.NoRoom;
        columns.offset[at] = one.offset;
        columns.sequence[at] = one.sequence;
        const time = one.timestamp;
        if (time == NO_TIMESTAMP or time < columns.first_time or time > columns.last_time) {
            columns.timestamp[at] = 0;
            columns.timestamp_nulls += 1;
        } else {
            columns.timestamp[at] = time *% 1000;
            setBit(columns.timestamp_valid, at);
        }
        try columns.key.put(at, one.key);
        try columns.value.put(at, one.value);
        columns.rows = at + 1;
    }

    inline fn header(self: *Writer, name: []const u8, value: ?[]const u8) Error!void {
        const columns = self.columns;
        const at = columns.header_rows;
        if (at >= columns.header_rows_size) return error.NoRoom;
        try columns.header_key.put(at, name);
        try columns.header_value.put(at, value);
        columns.header_rows = at + 1;
    }

    /// After the headers of a row.
    inline fn end(self: *Writer) void {
        const columns = self.columns;
        columns.header_offsets[columns.rows] = @intCast(columns.header_rows);
    }
};

fn read(batch: *const Batch, sink: anytype) Error!void {
    const bytes: []const u8 = if (batch.records) |begin| begin[0..batch.size] else &.{};
    switch (batch.magic) {
        0 => try messages(0, batch, bytes, sink),
        1 => try messages(1, batch, bytes, sink),
        2 => try records(batch, bytes, sink),
        else => return error.Odd,
    }
}

/// Decodes records of magic 2 (`org.apache.kafka.common.record.DefaultRecord`), which fill `bytes`.
fn records(batch: *const Batch, bytes: []const u8, sink: anytype) Error!void {
    var reader = Reader{ .bytes = bytes };
    var left = batch.most_records;
    var headers_left = batch.most_headers;
    while (reader.left() > 0) {
        if (left == 0) return error.Odd;
        left -= 1;
        const length = try reader.zigzag32();
        if (length <= 0 or length > reader.left()) return error.Odd;
        // A reader of this record alone, so that no field can extend past its end.
        var one = Reader{ .bytes = try reader.take(@intCast(length)) };
        _ = try one.byte(); // attributes, of which none is defined
        const timestamp = batch.base_timestamp +% try one.zigzag64();
        const delta = try one.zigzag32();
        const key = try nullable(&one);
        try sink.row(.{
            .offset = batch.base_offset +% delta,
            .timestamp = if (batch.appended != 0) batch.append_timestamp else timestamp,
            .sequence = sequence(batch.base_sequence, delta),
            .key = key,
            .value = try nullable(&one),
        });
        try headers(&one, &headers_left, sink);
        if (one.left() > 0) return error.Odd;
        sink.end();
    }
}

fn headers(record: *Reader, left: *u64, sink: anytype) Error!void {
    const count = try record.zigzag32();
    if (count == 0) return;
    // Each header takes at least two bytes, so a false count cannot allocate memory.
    if (count < 0 or count > record.left() / 2 or count > left.*) return error.Odd;
    left.* -= @intCast(count);
    for (0..@intCast(count)) |_| {
        const name = try nullable(record) orelse return error.Odd;
        try sink.header(name, try nullable(record));
    }
}

/// Sequence numbers wrap to 0 after the highest (`DefaultRecordBatch.incrementSequence`).
inline fn sequence(base: i32, delta: i64) i32 {
    if (base < 0) return NO_SEQUENCE;
    return @intCast((@as(i64, base) + delta) & std.math.maxInt(i32));
}

/// Decodes uncompressed messages of magic 0 or 1 (`org.apache.kafka.common.record.LegacyRecord`), which fill `bytes`.
fn messages(comptime magic: u8, batch: *const Batch, bytes: []const u8, sink: anytype) Error!void {
    var at: usize = 0;
    var left = batch.most_records;
    while (at < bytes.len) {
        if (left == 0 or bytes.len - at < MIN_MESSAGE[magic]) return error.Odd;
        left -= 1;
        const size = std.mem.readInt(i32, bytes[at + 8 ..][0..4], .big);
        if (size < MIN_MESSAGE[magic] - ENTRY or size > bytes.len - at - ENTRY) return error.Odd;
        const whole = bytes[at..][0 .. ENTRY + @as(usize, @intCast(size))];
        try message(magic, batch, whole, sink);
        at += whole.len;
    }
}

fn message(comptime magic: u8, batch: *const Batch, bytes: []const u8, sink: anytype) Error!void {
    var reader = Reader{ .bytes = bytes };
    const offset = try reader.int(i64);
    _ = try reader.int(i32);
    const crc = try reader.int(u32);
    const own_magic = try reader.byte();
    const attributes = try reader.byte();
    if (own_magic != magic or attributes & 7 != 0) return error.Odd;
    if (crc32(bytes[CHECKED..]) != crc) return error.Odd;
    // In magic 0 there is no timestamp that an append could set.
    const timestamp = if (magic == 0) NO_TIMESTAMP else try reader.int(i64);
    const key = try sized(&reader);
    try sink.row(.{
        .offset = batch.base_offset +% offset,
        .timestamp = if (magic == 1 and batch.appended != 0) batch.append_timestamp else timestamp,
        .sequence = NO_SEQUENCE,
        .key = key,
        .value = try sized(&reader),
    });
    if (reader.left() > 0) return error.Odd;
    sink.end();
}

/// Bytes with a varint length prefix; null if it is -1.
inline fn nullable(record: *Reader) Error!?[]const u8 {
    return bytesOf(record, try record.zigzag32());
}

/// Bytes with an int32 length prefix; null if it is -1.
inline fn sized(reader: *Reader) Error!?[]const u8 {
    return bytesOf(reader, try reader.int(i32));
}

inline fn bytesOf(reader: *Reader, length: i64) Error!?[]const u8 {
    if (length < 0) {
        if (length != -1) return error.Odd;
        return null;
    }
    return try reader.take(@intCast(length));
}

inline fn setBit(bits: [*]u8, index: usize) void {
    bits[index / 8] |= @as(u8, 1) << @as(u3, @intCast(index % 8));
}

/// Whether `text` begins with a text of the list (length-prefixed texts).
fn beginsWithListed(text: []const u8, list: []const u8) bool {
    var items = Listed{ .list = list };
    while (items.next()) |item| {
        if (std.mem.startsWith(u8, text, item)) return true;
    }
    return false;
}

/// Whether `text` is in the list.
fn isListed(text: []const u8, list: []const u8) bool {
    var items = Listed{ .list = list };
    while (items.next()) |item| {
        if (std.mem.eql(u8, item, text)) return true;
    }
    return false;
}

const Listed = struct {
    list: []const u8,
    at: usize = 0,

    fn next(self: *Listed) ?[]const u8 {
        if (self.at >= self.list.len) return null;
        const size = self.list[self.at];
        if (size > self.list.len - self.at - 1) return null;
        const found = self.list[self.at + 1 ..][0..size];
        self.at += 1 + @as(usize, size);
        return found;
    }
};
