//! Messages without secrets and payload, and the packets of a written capture that get their bytes.
//!
//! The specification of what may be shown is `redact/message.py`. A message with anything unusual is left to it: what is
//! done here needs no judgement.

const calls = @import("call.zig");
const crc32c = @import("checksum.zig").crc32c;
const Error = @import("reader.zig").Error;
const feed_found = @import("feed_found.zig");
const isText = @import("text.zig").isText;
const marks = @import("record_marks.zig");
const Op = @import("program.zig").Op;
const Program = @import("program.zig").Program;
const Reader = @import("reader.zig").Reader;
const records_of = @import("records.zig");
const std = @import("std");
const Walk = @import("walk.zig").Walk;

/// As `copied.BLANK`.
const BLANK = 0xFF;
/// Bytes in front of a message.
const PREFIX = 4;

const Outcome = enum(u8) { left = 0, done = 1 };

/// A compressed batch that may be shown if its records hold no secrets.
const Compressed = extern struct {
    /// Index of its message.
    message: u64,
    /// Where it is in the output, and its size.
    start: u64,
    size: u64,
    codec: u32,
    /// Number of records in its header.
    count: u32,
};

/// Regular messages to copy, each with its length prefix.
pub const Blanking = extern struct {
    messages: feed_found.Messages,
    /// By code, those of requests before those of responses: null if all such messages are left to Python.
    programs: [*]const ?[*]const u8,
    /// Prefixes of keys of records that may hold secrets: length-prefixed texts.
    marks: [*]const u8,
    marks_size: u64,
    /// Ids of the brokers' own topics, 16 bytes each.
    topics: [*]const u8,
    topics_count: u64,
    shows_secrets: u32,
    shows_payload: u32,
    max_records: u64,
    /// The position of each message's copy in the output.
    starts: [*]const u64,
    output: [*]u8,
    output_size: u64,
    /// Result for each message: `Outcome`.
    outcomes: [*]Outcome,
    /// Room for the compressed batches of messages that are done otherwise.
    compressed: [*]Compressed,
    compressed_size: u64,
    /// How many there are.
    compressed_count: u64,

    pub fn run(self: *Blanking) void {
        const all = self.messages.rows[0..self.messages.size];
        var call: calls.Call = undefined;
        // No room for notes: a message with a problem is left to Python.
        call.notes_size = 0;
        call.max_records = self.max_records;
        call.wants = std.mem.zeroInit(calls.Wants, .{ .form = .auto, .records = .full, .output = .pack, .payload = .shown });
        call.wants.show_secrets = self.shows_secrets != 0;
        self.compressed_count = 0;
        for (all, self.outcomes[0..all.len], self.starts[0..all.len], 0..) |*message, *outcome, start, index| {
            const before = self.compressed_count;
            outcome.* = if (self.copy(&call, message, start, index)) .done else |_| .left;
            if (outcome.* == .left) self.compressed_count = before;
        }
    }

    /// Whether decompressed records of a batch of `wire` bytes hold no secrets.
    pub fn mayShow(self: *Blanking, bytes: []const u8, count: u64, wire: usize) bool {
        var out = Blank{ .blanking = self, .bytes = &.{}, .left = self.max_records };
        out.records(bytes, 0, count, wire) catch return false;
        return true;
    }

    fn copy(
        self: *Blanking,
        call: *calls.Call,
        message: *const feed_found.Message,
        start: u64,
        index: usize,
    ) Error!void {
        const flags = message.flags;
        if (flags.ended or flags.tags) return error.Odd;
        const side: usize = if (flags.request) 0 else feed_found.KEYS * feed_found.VERSIONS;
        const program = self.programs[side + message.code] orelse return error.Odd;
        const bytes = try self.messages.bytes(message);
        if (start > self.output_size or self.output_size - start < PREFIX + bytes.len) return error.NoRoom;
        if (message.body > bytes.len) return error.Odd;
        if (flags.request) {
            if (try self.messages.clientId(message)) |name| if (!isText(name)) return error.Odd;
        }
        const whole = self.output[start..][0 .. PREFIX + bytes.len];
        std.mem.writeInt(u32, whole[0..PREFIX], message.size, .big);
        @memcpy(whole[PREFIX..], bytes);
        var out = Blank{
            .blanking = self,
            .bytes = whole[PREFIX..],
            .left = self.max_records,
            .message = index,
            .start = start + PREFIX,
        };
        var walk = Walk(Blank).init(call, Program.at(program), bytes, message.body, &out, null);
        if (try walk.run() != bytes.len or walk.notes.used != 0) return error.Odd;
    }
};

/// A walk that blanks what may not be shown, and writes nothing.
const Blank = struct {
    pub const is_final = false;
    pub const is_tree = false;
    pub const blanks = true;

    blanking: *Blanking,
    /// A copy of the message.
    bytes: []u8,
    /// Its index, and where it is in the output.
    message: usize = 0,
    start: u64 = 0,
    /// Records and headers that the message may still have.
    left: u64,
    at: usize = 0,

    pub inline fn save(_: *const Blank) usize {
        return 0;
    }
    pub inline fn restore(_: *Blank, _: usize) void {}
    pub inline fn openMap(_: *Blank, _: usize, _: usize) Error!usize {
        return 0;
    }
    pub inline fn closeMap(_: *Blank, _: usize, _: usize) Error!void {}
    pub inline fn key(_: *Blank, _: []const u8, _: bool) Error!void {}
    pub inline fn openArray(_: *Blank, _: usize) Error!usize {
        return 0;
    }
    pub inline fn element(_: *Blank, _: bool) Error!void {}
    pub inline fn closeArray(_: *Blank) Error!void {}
    pub inline fn endArray(_: *Blank, _: usize, _: usize) Error!void {
        return error.Odd;
    }
    pub inline fn nothing(_: *Blank) Error!void {}
    pub inline fn integer(_: *Blank, _: i64) Error!void {}
    pub inline fn boolean(_: *Blank, _: bool) Error!void {}
    pub inline fn float(_: *Blank, _: u64) Error!void {}

    /// The brokers' own topics have records that are shown.
    pub fn uuid(self: *Blank, op: *const Op, value: *const [16]u8) Error!void {
        if (!op.flags.watched) return;
        const topics = self.blanking.topics[0 .. 16 * self.blanking.topics_count];
        var at: usize = 0;
        while (at < topics.len) : (at += 16) if (std.mem.eql(u8, topics[at..][0..16], value)) return error.Odd;
    }

    /// A string, bytes or records, at a position of the message; `hides`: secrets are blank.
    pub fn variable(self: *Blank, op: *const Op, hides: bool, value: []const u8, at: usize) Error!void {
        const hidden = (op.flags.secret and hides) or (op.flags.payload and self.blanking.shows_payload == 0);
        switch (op.kind) {
            .string => {
                // Whether a configuration is secret depends on its name.
                if (op.flags.config and hides) return error.Odd;
                if (!isText(value) or (op.flags.watched and std.mem.startsWith(u8, value, "__"))) return error.Odd;
                if (hidden) self.hide(at, value.len, 0);
            },
            .bytes => {
                if (op.flags.nests) return error.Odd;
                if (hidden) self.hide(at, value.len, BLANK);
            },
            else => {
                if (op.flags.secret or op.flags.unaligned) return error.Odd;
                try self.batches(value, at);
            },
        }
    }

    fn hide(self: *Blank, at: usize, size: usize, stand_in: u8) void {
        @memset(self.bytes[at..][0..size], stand_in);
    }

    fn batches(self: *Blank, value: []const u8, position: usize) Error!void {
        var rest = records_of.Batches{ .bytes = value };
        while (try rest.next()) |found| try self.batch(found, position + rest.at - found.len);
        // The beginning of another batch.
        if (rest.at != value.len) return error.Odd;
    }

    fn batch(self: *Blank, found: []const u8, position: usize) Error!void {
        if (found[records_of.MAGIC_AT] != 2) return error.Odd;
        const attributes = std.mem.readInt(u16, found[records_of.CRC_START..][0..2], .big);
        const count = std.mem.readInt(i32, found[records_of.HEADER_SIZE - 4 ..][0..4], .big);
        if (attributes & (records_of.UNKNOWN_BITS | records_of.CONTROL) != 0 or count <= 0) return error.Odd;
        const crc = found[records_of.CRC_START - 4 ..][0..4];
        if (crc32c(found[records_of.CRC_START..]) != std.mem.readInt(u32, crc, .big)) return error.Odd;
        const codec = attributes & 7;
        if (codec >= records_of.CODECS.len) return error.Odd;
        const start = position + records_of.HEADER_SIZE;
        if (codec == 0) {
            try self.records(found[records_of.HEADER_SIZE..], start, @intCast(count), found.len);
        } else {
            // Compressed records cannot be separated.
            if (self.blanking.shows_payload != 0) return self.ask(position, found.len, codec, @intCast(count));
            self.hide(start, found.len - records_of.HEADER_SIZE, BLANK);
        }
        if (self.blanking.shows_payload != 0) return;
        // A checksum reveals something about its data.
        const shown = self.bytes[position..][0..found.len];
        std.mem.writeInt(u32, shown[records_of.CRC_START - 4 ..][0..4], crc32c(shown[records_of.CRC_START..]), .big);
    }

    /// Whether a batch holds secrets is known when it is decompressed.
    fn ask(self: *Blank, position: usize, size: usize, codec: u32, count: u32) Error!void {
        const blanking = self.blanking;
        if (blanking.compressed_count == blanking.compressed_size) return error.Odd;
        blanking.compressed[blanking.compressed_count] = .{
            .message = self.message,
            .start = self.start + position,
            .size = size,
            .codec = codec,
            .count = count,
        };
        blanking.compressed_count += 1;
    }

    fn records(self: *Blank, bytes: []const u8, position: usize, count: u64, wire: usize) Error!void {
        const blanking = self.blanking;
        if (count > @min(self.left, records_of.MAX_RECORD_RATE *| wire)) return error.Odd;
        const most_headers = @min(self.left, records_of.MAX_HEADER_RATE *| wire);
        var headers: u64 = 0;
        var reader = Reader{ .bytes = bytes };
        for (0..count) |_| {
            const length = try reader.zigzag32();
            if (length <= 0 or length > reader.left()) return error.Odd;
            const stop = reader.at + @as(usize, @intCast(length));
            // No field can extend past the end of its record.
            var record = Reader{ .bytes = bytes[0..stop], .at = reader.at };
            reader.at = stop;
            _ = try record.byte();
            _ = try record.zigzag64();
            _ = try record.zigzag32();
            const of_key = try self.field(&record, position, true);
            const value = try self.field(&record, position, true);
            if (blanking.shows_secrets == 0 and blanking.shows_payload != 0 and of_key != null and value != null) {
                // Settings of Kafka Connect may be secret.
                if (marks.beginsWithMark(of_key.?, blanking.marks[0..blanking.marks_size])) return error.Odd;
            }
            const of_record = try record.zigzag32();
            if (of_record < 0 or of_record > record.left() / 2) return error.Odd;
            headers += @intCast(of_record);
            if (headers > most_headers) return error.Odd;
            for (0..@intCast(of_record)) |_| {
                const name = try self.field(&record, position, false) orelse return error.Odd;
                if (!isText(name)) return error.Odd;
                _ = try self.field(&record, position, true);
            }
            if (record.left() > 0) return error.Odd;
        }
        if (reader.left() > 0) return error.Odd;
        self.left -= @max(count, headers);
    }

    /// A key, a value, or a part of a header, in bytes that begin at `position` of the message.
    fn field(self: *Blank, record: *Reader, position: usize, is_payload: bool) Error!?[]const u8 {
        const length = try record.zigzag32();
        if (length < -1) return error.Odd;
        if (length < 0) return null;
        const value = try record.take(@intCast(length));
        if (is_payload and self.blanking.shows_payload == 0) self.hide(position + record.at - value.len, value.len, BLANK);
        return value;
    }
};

// -- packets ----------------------------------------------------------------------------------------------------------

/// The payload of a written packet.
pub const Place = extern struct {
    stream: u64,
    /// Positions in the stream of its first byte, and after its last.
    position: i64,
    end: i64,
    /// Offsets in the file of the payload and of the TCP header.
    at: i64,
    header: i64,
    /// Bytes of it that became known in this call.
    known: u32,
    /// Sum of what a TCP checksum covers besides header and payload.
    pseudo: u32,
    /// Its bytes changed; a piece is for it, but it is outside of the bytes at hand.
    touched: u32,
    far: u32,
    /// It is to be blank first, and this many bytes after it 0.
    fresh: u32,
    padding: u32,
};

/// Bytes of a stream that may be shown.
pub const Piece = extern struct { stream: u64, position: i64, start: u64, size: u64 };

/// The offset of the checksum in a TCP header (RFC 9293, 3.1).
const CHECKSUM_AT = 16;

pub const Patching = extern struct {
    /// By stream and position.
    places: [*]Place,
    places_count: u64,
    pieces: [*]const Piece,
    pieces_count: u64,
    arena: [*]const u8,
    arena_size: u64,
    /// The bytes of the file from the offset `base` on.
    file: [*]u8,
    file_size: u64,
    base: i64,
    /// Room for a number for each place.
    reach: [*]i64,

    pub fn run(self: *const Patching) void {
        const places = self.places[0..self.places_count];
        const reach = self.reach[0..places.len];
        for (places, 0..) |*place, i| {
            const follows = i != 0 and places[i - 1].stream == place.stream;
            reach[i] = if (follows) @max(reach[i - 1], place.end) else place.end;
        }
        for (places) |*place| if (place.fresh != 0) self.blank(place);
        for (self.pieces[0..self.pieces_count]) |*piece| {
            if (piece.start > self.arena_size or piece.size > self.arena_size - piece.start) continue;
            self.show(piece);
        }
        for (places) |*place| if (place.touched != 0 and self.has(place)) self.sum(place);
    }

    fn blank(self: *const Patching, place: *Place) void {
        place.fresh = 0;
        const size: usize = @intCast(place.end - place.position);
        if (place.at < self.base) return;
        const at: usize = @intCast(place.at - self.base);
        if (at + size + place.padding > self.file_size) return;
        @memset(self.file[at..][0..size], BLANK);
        @memset(self.file[at + size ..][0..place.padding], 0);
        place.touched = @intFromBool(size != 0);
    }

    fn has(self: *const Patching, place: *const Place) bool {
        const end = self.base + @as(i64, @intCast(self.file_size));
        return place.header >= self.base and place.header + CHECKSUM_AT + 2 <= place.at and
            place.at + (place.end - place.position) <= end;
    }

    fn show(self: *const Patching, piece: *const Piece) void {
        const places = self.places[0..self.places_count];
        var low: usize = 0;
        var high: usize = places.len;
        while (low < high) {
            const middle = low + (high - low) / 2;
            const other = places[middle].stream;
            const before = if (other != piece.stream) other < piece.stream else self.reach[middle] <= piece.position;
            if (before) low = middle + 1 else high = middle;
        }
        const stop = piece.position + @as(i64, @intCast(piece.size));
        for (places[low..]) |*place| {
            if (place.stream != piece.stream or place.position >= stop) break;
            const first = @max(place.position, piece.position);
            const last = @min(place.end, stop);
            if (first >= last) continue;
            place.known +|= @intCast(last - first);
            if (!self.has(place)) {
                place.far = 1;
                continue;
            }
            place.touched = 1;
            const size: usize = @intCast(last - first);
            const from = piece.start + @as(u64, @intCast(first - piece.position));
            const to: usize = @intCast(place.at + (first - place.position) - self.base);
            @memcpy(self.file[to..][0..size], self.arena[from..][0..size]);
        }
    }

    /// Computes the checksum of a packet (RFC 1071); bytes that were not captured count as zeros.
    fn sum(self: *const Patching, place: *const Place) void {
        const header: usize = @intCast(place.header - self.base);
        const end: usize = @intCast(place.at + (place.end - place.position) - self.base);
        const bytes = self.file[header..end];
        bytes[CHECKSUM_AT] = 0;
        bytes[CHECKSUM_AT + 1] = 0;
        var total: u64 = place.pseudo;
        var at: usize = 0;
        while (bytes.len - at >= 4) : (at += 4) total += std.mem.readInt(u32, bytes[at..][0..4], .big);
        if (bytes.len - at >= 2) {
            total += std.mem.readInt(u16, bytes[at..][0..2], .big);
            at += 2;
        }
        if (at < bytes.len) total += @as(u64, bytes[at]) << 8;
        const rest: u16 = @intCast(total % 65_535);
        std.mem.writeInt(u16, bytes[CHECKSUM_AT..][0..2], if (rest == 0) 0 else 65_535 - rest, .big);
    }
};
