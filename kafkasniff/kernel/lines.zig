//! Messages of `feed.zig` as JSON lines, or as rows of CSV (`csv_rows.zig`).
//!
//! The specification is `kafkasniff/sinks/jsonl.py`. Messages with more to report than header, body, error codes and
//! problems that the walk notes are left to Python. `kafkasniff/native/lines.py` has the same structures.

const calls = @import("call.zig");
const csv_rows = @import("csv_rows.zig");
const feed = @import("feed_found.zig");
const Hiding = @import("payload.zig").Hiding;
const isText = @import("text.zig").isText;
const Json = @import("json.zig").Json;
const Names = @import("names.zig").Names;
const problems_of = @import("line_problems.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const Silent = @import("silent.zig").Silent;
const std = @import("std");
const times = @import("times.zig");
const Walk = @import("walk.zig").Walk;

const Error = reading.Error;
const Message = feed.Message;

/// The number of the capture is stored above the packet number (`segments.PACKET_SHIFT`).
pub const PACKET_SHIFT = 40;
pub const PACKET_NUMBER = (1 << PACKET_SHIFT) - 1;

pub const Outcome = enum(i32) {
    /// All messages of the range were processed; or `next` is the first one that was not:
    done = 0,
    /// there is no room for its line,
    no_room = 1,
    /// its records have to be decompressed (`Call.batches`) and given in the next call,
    compressed = 2,
    /// or there is no `Kind`, no `Connection` or no `Text` for it yet.
    new_kind = 3,
    new_connection = 4,
    new_capture = 5,
    /// The caller has to answer first (`names.Asks`).
    asks = 6,
    /// How to decode control records (`Call.controls`) is not known yet.
    new_controls = 7,
    misuse = 8,
};

pub const State = enum(u8) { left = 0, written = 1 };

/// How a message is handled.
pub const Shown = enum(u8) {
    /// It is decoded like the others, to find what has to be reported, but has no line.
    read = 0,
    written = 1,
    /// It is left to Python.
    left = 2,
    /// Written, after it was read: its problems are counted.
    again = 3,
    _,
};

/// A text in memory of the caller. Null: not known yet.
pub const Text = extern struct {
    text: ?[*]const u8,
    size: u64,

    pub inline fn get(self: *const Text) ?[]const u8 {
        return (self.text orelse return null)[0..self.size];
    }
};

pub const Connection = extern struct {
    number: i64,
    /// Bytes of `text`; 0: not known yet.
    size: u32,
    /// 1: all its messages are left to Python.
    left: u32,
    /// `"client":"…","broker":"…"`, or both cells
    text: [128]u8,
};

/// A version of an API in one direction.
pub const Kind = extern struct {
    /// `"api_key":…,"api":"…","api_version":…`, or three cells
    text: Text,
    /// The program that renders bodies; null: the messages are left to Python.
    program: ?[*]const u8,
    /// 1: bodies are not shown.
    bare: u32,
    /// 1: the messages map topic ids to names.
    teaches: u32,
    /// Bodies that are not shown: 1 shows their bytes, 2 their size.
    raw: u32,
    spare: u32,
    /// Problems reported with each message: JSON, or a part of the cell.
    problems: Text,
    careful: problems_of.Careful,
};

/// The messages of a batch, with their facts and the memory that holds their bytes.
pub const Source = extern struct {
    found: feed.Messages,
    /// How each message is handled; null: all are written.
    shown: ?[*]const Shown,

    /// How a message is handled.
    pub inline fn shownOf(self: *const Source, index: u64) Shown {
        return (self.shown orelse return .written)[index];
    }

    /// The client id of a message; a response has that of its request.
    pub fn clientId(self: *const Source, message: *const Message) Error!?[]const u8 {
        if (message.flags.request) return self.found.clientId(message);
        if (message.pair >= self.found.size) return error.Odd;
        const request = &self.found.rows[message.pair];
        return if (request.flags.request) self.found.clientId(request) else error.Odd;
    }

    /// `Odd` if the client id of a request is not UTF-8, which has to be reported.
    pub fn checkClientId(self: *const Source, request: *const Message) Error!void {
        const text = try self.found.clientId(request) orelse return;
        if (!isText(text)) return error.Odd;
    }
};

pub const Lines = extern struct {
    source: Source,
    call: *calls.Call,
    /// Names that are added to bodies; null: bodies stay as they are.
    names: ?*Names,
    connections: [*]const Connection,
    connections_size: u64,
    /// By direction (0 request, 1 response) and code.
    kinds: [*]const Kind,
    /// By the number of the capture: its name as JSON or as a cell, or an empty text if lines do not name it.
    captures: [*]const Text,
    captures_size: u64,
    /// Names of error codes, as JSON or as text, indexed by the code minus the first one.
    errors: [*]const Text,
    errors_size: u64,
    first_error: i64,
    wordings: problems_of.Wordings,
    /// 1: rows of CSV.
    rows: u64,
    /// The largest message that is written here, in bytes.
    most: u64,

    /// The range. `next` is a result, too.
    next: u64,
    last: u64,
    /// The missing item for `next` (index of the connection, place of the kind or number of the capture), and the
    /// message's size.
    wanted: u64,
    data: ?[*]const u8,
    data_size: u64,
    /// Bytes of lines so far.
    used: u64,
    /// How each message from `base` on was handled, and the end of its line.
    base: u64,
    ends: [*]u64,
    states: [*]State,
    /// The number of problems that the walk of each has noted.
    counts: [*]u8,
};

pub fn errorName(lines: *const Lines, code: i64) ?[]const u8 {
    const known: u64 = @bitCast(code -% lines.first_error);
    return if (known < lines.errors_size) lines.errors[known].get() else null;
}

/// Why a message has no line.
const Stop = error{Odd} || Wanting;
const Wanting = error{ NoRoom, Compressed, NewKind, NewConnection, NewCapture, Asks };

pub fn run(lines: *Lines) Outcome {
    const call = lines.call;
    if (lines.next < lines.base or lines.last > lines.source.found.size or lines.used > call.output_size) return .misuse;
    if (call.wants.output != .json) return .misuse;
    var memory: Hiding = undefined;
    const hiding = if (memory.begin(call)) &memory else null;
    defer if (hiding) |used| used.forget();
    var writer = Writer{
        .lines = lines,
        .hiding = hiding,
        .out = .{ .bytes = call.output[0..call.output_size], .at = lines.used, .form = call.wants.form, .hiding = hiding },
    };
    while (lines.next < lines.last) : (lines.next += 1) {
        const index = lines.next - lines.base;
        lines.states[index] = .left;
        lines.counts[index] = 0;
        const shown = lines.source.shownOf(lines.next);
        if (writer.line(lines.next, shown)) |noted| {
            lines.states[index] = .written;
            if (shown != .again) lines.counts[index] = @intCast(noted);
            if (shown == .read) writer.out.at = lines.used else lines.used = writer.out.at;
        } else |reason| {
            writer.out.at = lines.used;
            switch (reason) {
                error.Odd => if (call.controls_wanted != 0) return .new_controls,
                else => |other| return want(lines, other),
            }
        }
        call.batches_given = 0;
        lines.ends[index] = lines.used;
    }
    return .done;
}

/// Sets what the caller has to provide for the next message.
fn want(lines: *Lines, reason: Wanting) Outcome {
    const message = &lines.source.found.rows[lines.next];
    switch (reason) {
        error.NoRoom, error.Compressed => {
            const source = if (message.flags.arena) lines.source.found.arena else lines.source.found.buffer;
            lines.data = source + message.start;
            lines.data_size = message.size;
            return if (reason == error.NoRoom) .no_room else .compressed;
        },
        error.Asks => return .asks,
        error.NewKind => {
            lines.wanted = kindOf(message);
            return .new_kind;
        },
        error.NewConnection => {
            lines.wanted = message.connection;
            return .new_connection;
        },
        error.NewCapture => {
            lines.wanted = @intCast(message.packet >> PACKET_SHIFT);
            return .new_capture;
        },
    }
}

/// The place of a message's kind in `Lines.kinds`.
pub inline fn kindOf(message: *const Message) usize {
    return @as(usize, @intFromBool(!message.flags.request)) * feed.KEYS * feed.VERSIONS + message.code;
}

const Writer = struct {
    lines: *const Lines,
    hiding: ?*Hiding,
    out: Json,
    moment: times.Moment = .{},

    const Self = @This();

    /// Writes the line of a message. Returns the number of problems that its body has.
    fn line(self: *Self, index: u64, shown: Shown) Stop!u32 {
        const lines = self.lines;
        const message = &lines.source.found.rows[index];
        if (message.code >= feed.KEYS * feed.VERSIONS) return error.Odd;
        const is_request = message.flags.request;
        const kind = &lines.kinds[kindOf(message)];
        const api = kind.text.get() orelse return error.NewKind;
        if (message.flags.tags or (kind.program == null and kind.bare == 0)) return error.Odd;
        if (shown != .written and shown != .again) {
            if (shown != .read or message.size > lines.most) return error.Odd;
            const data = try lines.source.found.bytes(message);
            if (message.body > data.len) return error.Odd;
            if (is_request) try lines.source.checkClientId(message);
            var silent = Silent{};
            return (try self.bodyOf(&silent, kind, message, index, data)).problems;
        }
        if (message.connection >= lines.connections_size) return error.NewConnection;
        const connection = &lines.connections[message.connection];
        if (connection.size == 0) return error.NewConnection;
        if (connection.left != 0 or connection.size > connection.text.len) return error.Odd;
        const data = try lines.source.found.bytes(message);
        if (message.body > data.len or message.size > lines.most or message.time == feed.NO_TIME) return error.Odd;
        const capture = try self.captureOf(message);
        if (lines.rows != 0) {
            var silent = Silent{};
            const found = try self.bodyOf(&silent, kind, message, index, data);
            try csv_rows.row(lines, &self.out, .{
                .message = message,
                .number = message.number,
                .time = self.moment.rfc3339(message.time),
                .capture = capture,
                .connection = connection,
                .kind = kind,
                .client_id = try lines.source.clientId(message),
                .found = found,
            });
            return found.problems;
        }

        const out = &self.out;
        try out.put(if (is_request) "{\"type\":\"request\",\"exchange\":" else "{\"type\":\"response\",\"exchange\":");
        try out.integer(message.number);
        try out.put(",\"connection\":");
        try out.integer(connection.number);
        try out.put(",\"time\":\"");
        try out.put(self.moment.rfc3339(message.time));
        try out.put("\",");
        try out.put(connection.text[0..connection.size]);
        try out.byte(',');
        try out.put(api);
        try out.put(",\"correlation_id\":");
        try out.integer(message.correlation);
        try out.put(",\"client_id\":");
        if (try lines.source.clientId(message)) |name| try out.string(name) else try out.nothing();
        try out.put(",\"size\":");
        try out.integer(message.size);
        try out.put(",\"first_packet\":");
        try out.integer(message.first_packet & PACKET_NUMBER);
        try out.put(",\"last_packet\":");
        try out.integer(message.last_packet & PACKET_NUMBER);
        try out.put(",\"problems\":");
        try out.put(kind.problems.get() orelse "[]");
        const behind_problems = out.at;
        if (!is_request) {
            try out.put(",\"latency_ms\":");
            try milliseconds(out, message.latency);
            try out.put(",\"duration_ms\":");
            try milliseconds(out, message.duration);
            try out.put(",\"errors\":[]");
        }
        const behind_errors = out.at;
        if (capture.len > 0) {
            try out.put(",\"capture\":");
            try out.put(capture);
        }
        try out.put(",\"body\":");
        const found = try self.bodyOf(out, kind, message, index, data);
        if (kind.raw != 0 or found.ended) try self.raw(kind.raw < 2, data[message.body..]);
        if (found.noted > 0) {
            if (!is_request) try self.errors(found.noted, behind_errors - 1);
            if (found.problems > 0) try self.problems(&found, kind, behind_problems - 1);
        }
        try out.put("}\n");
        return found.problems;
    }

    /// A body that cannot be decoded.
    fn raw(self: *Self, is_shown: bool, bytes: []const u8) Error!void {
        @branchHint(.unlikely);
        const out = &self.out;
        try out.put(",\"raw\":");
        if (is_shown) try out.encoded(bytes) else try out.withheld(0, bytes.len);
    }

    /// Writes the body of a message.
    inline fn bodyOf(self: *Self, out: anytype, kind: *const Kind, message: *const Message, index: u64, data: []const u8) Stop!problems_of.Found {
        const program = kind.program orelse {
            try out.nothing();
            return .{};
        };
        const names = self.lines.names;
        if (names) |some| some.begin(index, kind.teaches != 0);
        const found = self.body(out, program, kind, data, message.body);
        if (names) |some| if (some.isAsking()) return error.Asks;
        return found;
    }

    inline fn captureOf(self: *const Self, message: *const Message) Stop![]const u8 {
        const lines = self.lines;
        if (message.packet < 0) return error.Odd;
        const number: usize = @intCast(message.packet >> PACKET_SHIFT);
        if (number >= lines.captures_size) return error.NewCapture;
        return lines.captures[number].get() orelse error.NewCapture;
    }

    fn body(self: *Self, out: anytype, program: [*]const u8, kind: *const Kind, data: []const u8, start: usize) Stop!problems_of.Found {
        const call = self.lines.call;
        call.batches_wanted = 0;
        call.records = 0;
        call.truncated = 0;
        call.looked_at = 0;
        var walk = Walk(@TypeOf(out.*)).init(call, programs.Program.at(program), data, start, out, self.hiding);
        walk.names = self.lines.names;
        const after = try walk.run();
        if (walk.account.wanting) return error.Compressed;
        if (walk.account.used != call.batches_given) return error.Odd;
        const found = try problems_of.take(&walk, after, data, start, &self.lines.wordings, &kind.careful);
        // Python decides what of it may be shown.
        return if (found.problems > 0 and self.hiding != null) error.Odd else found;
    }

    /// Inserts error codes at this position.
    fn errors(self: *Self, noted: usize, place: usize) Error!void {
        @branchHint(.unlikely);
        const lines = self.lines;
        const out = &self.out;
        const behind = out.at;
        var reader = problems_of.NotedReader{ .bytes = lines.call.notes[0..noted] };
        while (reader.next()) |note| {
            if (note.kind != 0) continue;
            try out.put(if (out.at == behind) "{\"code\":" else ",{\"code\":");
            try out.integer(note.facts[0]);
            try out.put(",\"name\":");
            try out.put(errorName(lines, note.facts[0]) orelse "null");
            try out.put(",\"path\":");
            try out.string(note.path);
            try out.byte('}');
        }
        std.mem.rotate(u8, out.bytes[place..out.at], behind - place);
    }

    /// Inserts problems at this position, after those of all such messages.
    fn problems(self: *Self, found: *const problems_of.Found, kind: *const Kind, place: usize) Error!void {
        @branchHint(.cold);
        const lines = self.lines;
        const out = &self.out;
        const behind = out.at;
        var is_first = out.bytes[place - 1] == '[';
        var reader = problems_of.NotedReader{ .bytes = lines.call.notes[0..found.noted] };
        while (reader.next()) |note| {
            if (note.kind == 0) continue;
            try out.put(if (is_first) "{\"kind\":\"" else ",{\"kind\":\"");
            is_first = false;
            try out.put(try problems_of.kindOf(&lines.wordings, note.kind));
            try out.put("\",\"detail\":\"");
            try problems_of.detail(out, &note, &lines.wordings, &kind.careful);
            try out.put("\",\"offset\":");
            try out.integer(@intCast(note.position));
            try out.byte('}');
        }
        std.mem.rotate(u8, out.bytes[place..out.at], behind - place);
    }
};

/// Nanoseconds as milliseconds, in orjson's digits. Numbers of up to 15 digits are exact in decimal, too.
pub fn milliseconds(out: *Json, nanoseconds: i64) Error!void {
    const value: u64 = @abs(nanoseconds);
    if (value >= 1_000_000_000_000_000) return error.Odd;
    if (nanoseconds < 0) try out.byte('-');
    if (value > 0 and value < 10) {
        try out.byte('0' + @as(u8, @intCast(value)));
        return out.put("e-6");
    }
    try out.integer(@intCast(value / 1_000_000));
    var digits: [7]u8 = undefined;
    digits[0] = '.';
    times.write(6, digits[1..7], @intCast(value % 1_000_000));
    var size: usize = digits.len;
    while (size > 2 and digits[size - 1] == '0') size -= 1;
    try out.put(digits[0..size]);
}
