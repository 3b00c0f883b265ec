//! Messages of `feed.zig` as lines of text, with `-v` and their bodies below them.
//!
//! The specification is `kafkasniff/sinks/text.py`. A line shows the summary of the body (`summary.zig`), the lines below
//! its problems (`line_problems.zig`) and with `-v` a tree of it (`tree.zig`). Columns are not padded yet, but marked for
//! `text_columns.zig`. A call ends at the first message that is left to Python. `kafkasniff/native/text_lines.py` has the
//! same structures.

const calls = @import("call.zig");
const Duration = @import("durations.zig").Duration;
const feed = @import("feed_found.zig");
const lines_of = @import("lines.zig");
const problems_of = @import("line_problems.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const Silent = @import("silent.zig").Silent;
const std = @import("std");
const summary_of = @import("summary.zig");
const text_columns = @import("text_columns.zig");
const times = @import("times.zig");
const tree = @import("tree.zig");
const Walk = @import("walk.zig").Walk;

const Error = reading.Error;
const Message = feed.Message;
const Style = tree.Style;
const Text = lines_of.Text;
const Tree = tree.Tree;

/// As `text.CLIENT_WIDTH`.
const CLIENT_WIDTH = 24;
/// As `text.LATENCY_WIDTH`.
const LATENCY_WIDTH = 8;
/// As `text.PROBLEMS_SHOWN`, and the columns before each.
const PROBLEMS_SHOWN = 3;
const PROBLEM_INDENT = 17;
const SPACES: [64]u8 = @splat(' ');

pub const Outcome = enum(i32) {
    /// All messages of the range have their lines; or `next` is the first one that has none:
    done = 0,
    /// there is no room for it,
    no_room = 1,
    /// it is left to Python,
    left = 2,
    /// or there are no `Ends`, no label of the API or no mark of the capture for it yet.
    new_connection = 3,
    new_label = 4,
    new_capture = 5,
    /// There is no `Table` for it yet.
    new_table = 6,
    /// The caller has to answer first (`names.Asks`).
    asks = 7,
    /// Its records have to be decompressed (`Call.batches`) and given in the next call.
    compressed = 8,
    /// How to decode control records (`Call.controls`), or how to show a page of characters, is not known yet.
    new_controls = 9,
    new_page = 10,
    misuse = 11,
};

/// Both ends of a connection with the arrow of a request or a response between them, and a mark after them.
pub const Ends = extern struct {
    request: Text,
    response: Text,
    /// The number of the connection.
    number: i64,
};

/// The summary table of an API's version, in one direction.
pub const Table = extern struct {
    /// Null: summaries are left to Python.
    address: ?[*]const u8,
    known: u32,
    /// 1: bodies are not shown; then there is no address.
    bare: u32,
    /// 1: messages map topic ids to names.
    teaches: u64,
    /// Lines below that of each message.
    below: Text,
    /// The program of bodies; its roles are `tree.Note`. Null: Python reports problems, and shows bodies.
    program: ?[*]const u8,
    careful: problems_of.Careful,
};

pub const TextLines = extern struct {
    source: lines_of.Source,
    connections: [*]const Ends,
    connections_size: u64,
    /// Name and version of an API by the code, and a mark after them.
    labels: [*]const Text,
    /// The mark of each capture; empty: captures are not shown.
    captures: [*]const Text,
    captures_size: u64,
    /// By direction (0 request, 1 response) and code.
    tables: [*]const Table,
    /// Names of topic ids, and fetch sessions of the messages; its output is not used.
    summaries: summary_of.Call,
    /// How bodies are shown; null: they are not.
    style: ?*const Style,
    /// How bodies are decoded that are shown, or that have problems. Its output is that of lines.
    call: *calls.Call,
    wordings: problems_of.Wordings,
    /// The largest message whose body is decoded here, in bytes.
    most: u64,
    /// The range. `next` is a result, too.
    next: u64,
    last: u64,
    /// The missing item for `next`: index of the connection, code, number of the capture or of the page, or place of the
    /// table.
    wanted: u64,
    /// The bytes of the message whose records have to be decompressed.
    data: ?[*]const u8,
    data_size: u64,
    /// Bytes of lines so far.
    used: u64,
    /// The end of the lines of each message, from `first` on.
    ends: [*]u64,
    ends_size: u64,
    first: u64,
    /// Problems of bodies so far.
    problems: u64,
};

const Stop = Error || error{ NewConnection, NewLabel, NewCapture, NewTable, NewPage, NewControls, Asks, Compressed };

pub fn run(lines: *TextLines) Outcome {
    // Otherwise its memory would be filled first, which takes longer than a line.
    @setRuntimeSafety(false);
    var walk: summary_of.Walk = undefined;
    var frames: tree.Frames = undefined;
    return write(lines, &walk, &frames);
}

noinline fn write(lines: *TextLines, walk: *summary_of.Walk, frames: *tree.Frames) Outcome {
    const call = lines.call;
    const bytes = call.output[0..call.output_size];
    if (lines.last > lines.source.found.size or lines.used > bytes.len) return .misuse;
    if (lines.next < lines.first or lines.last -| lines.first > lines.ends_size) return .misuse;
    walk.phrases.names = lines.summaries.names;
    walk.phrases.paint = lines.summaries.paint;
    walk.is_partial = false;
    var writer = Writer{
        .lines = lines,
        .bytes = bytes,
        .at = lines.used,
        .walk = walk,
        .frames = frames,
    };
    while (lines.next < lines.last) : (lines.next += 1) {
        const shown = lines.source.shownOf(lines.next);
        const problems = writer.message(lines.next, shown) catch |reason| {
            const message = &lines.source.found.rows[lines.next];
            switch (reason) {
                error.NoRoom => return .no_room,
                error.Odd => return .left,
                error.Asks => return .asks,
                error.NewControls => return .new_controls,
                error.Compressed => {
                    const found = &lines.source.found;
                    lines.data = (if (message.flags.arena) found.arena else found.buffer) + message.start;
                    lines.data_size = message.size;
                    return .compressed;
                },
                error.NewPage => {
                    lines.wanted = writer.page;
                    return .new_page;
                },
                error.NewConnection => {
                    lines.wanted = message.connection;
                    return .new_connection;
                },
                error.NewTable => {
                    lines.wanted = lines_of.kindOf(message);
                    return .new_table;
                },
                error.NewLabel => {
                    lines.wanted = message.code;
                    return .new_label;
                },
                error.NewCapture => {
                    lines.wanted = @intCast(message.packet >> lines_of.PACKET_SHIFT);
                    return .new_capture;
                },
            }
        };
        call.batches_given = 0;
        if (shown != .again) lines.problems += problems;
        if (shown == .read) writer.at = lines.used else lines.used = writer.at;
        lines.ends[lines.next - lines.first] = lines.used;
    }
    return .done;
}

const Writer = struct {
    lines: *const TextLines,
    bytes: []u8,
    at: usize,
    walk: *summary_of.Walk,
    frames: *tree.Frames,
    moment: times.Moment = .{},
    dates: times.Moment = .{},
    /// The page of characters that has to be added.
    page: u32 = 0,

    const Self = @This();

    /// Writes the lines of a message. Returns the number of problems that its body has.
    fn message(self: *Self, index: u64, shown: lines_of.Shown) Stop!u32 {
        const lines = self.lines;
        const one = &lines.source.found.rows[index];
        if (one.code >= feed.KEYS * feed.VERSIONS or one.time == feed.NO_TIME or one.flags.tags or one.packet < 0) return error.Odd;
        const table = try self.tableOf(one);
        if (shown != .written and shown != .again) {
            if (shown != .read) return error.Odd;
            if (one.flags.request) try lines.source.checkClientId(one);
            if (table.address == null) return 0;
            const found = try self.summary(table, one, index);
            if (lines.style) |style| try self.body(style, table, one, index, &found);
            return found.problems;
        }
        const label = lines.labels[one.code].get() orelse return error.NewLabel;
        if (one.connection >= lines.connections_size) return error.NewConnection;
        const ends = &lines.connections[one.connection];
        const is_request = one.flags.request;
        const pair = (if (is_request) ends.request else ends.response).get() orelse return error.NewConnection;
        const client_id = if (is_request) try lines.source.clientId(one) else null;

        const capture: usize = @intCast(one.packet >> lines_of.PACKET_SHIFT);
        if (capture >= lines.captures_size) return error.NewCapture;
        try self.put(lines.captures[capture].get() orelse return error.NewCapture);
        const time = self.moment.rfc3339(one.time);
        try self.mark(.day);
        try self.put(time[0..10]);
        try self.put(time[11..26]);
        try self.put("  ");
        try self.put(pair);
        try self.put("  ");
        try self.put(label);
        try self.put("  ");
        try self.number("#", one.number, .exchange);
        try self.put(" ");
        try self.number("corr ", one.correlation, .correlation);
        try self.put("  ");
        if (is_request) {
            try self.spaces(LATENCY_WIDTH);
            try self.put("  ");
            try self.client(client_id);
        } else {
            try self.latency(one.latency);
            try self.put("  ");
            try self.column(.client, 0);
        }
        try self.put("  ");
        const before = self.at;
        const found: problems_of.Found = if (table.address == null) .{} else try self.summary(table, one, index);
        if (self.at == before) try self.mark(.last);
        try self.put("\n");
        try self.put(table.below.get() orelse "");
        if (found.problems > 0) try self.problemLines(table, &found);
        if (lines.style) |style| try self.content(style, table, one, index, ends.number, &found);
        return found.problems;
    }

    inline fn tableOf(self: *const Self, one: *const Message) Stop!*const Table {
        const table = &self.lines.tables[lines_of.kindOf(one)];
        if (table.known == 0) return error.NewTable;
        return if (table.address == null and table.bare == 0) error.Odd else table;
    }

    /// Writes the summary of a body. Returns what there is to report of it.
    inline fn summary(self: *Self, table: *const Table, one: *const Message, index: u64) Stop!problems_of.Found {
        const lines = self.lines;
        const data = try lines.source.found.bytes(one);
        if (one.body > data.len) return error.Odd;
        var after: u64 = undefined;
        const size = self.summaryOf(table, one, index, data, &after) catch |reason| {
            return if (reason == error.Odd) self.partial(table, one, index, data) else reason;
        };
        if (after != data.len) return self.partial(table, one, index, data);
        self.at += size;
        return .{};
    }

    inline fn summaryOf(self: *Self, table: *const Table, one: *const Message, index: u64, data: []const u8, after: *u64) Stop!usize {
        const names = self.lines.summaries.names;
        if (names) |some| some.begin(index, table.teaches != 0);
        const size = summary_of.summary(self.walk, table.address.?, data, one.body, self.bytes[self.at..], after);
        if (names) |some| if (some.isAsking()) return error.Asks;
        return size;
    }

    /// The same for a body with problems, which another walk notes.
    fn partial(self: *Self, table: *const Table, one: *const Message, index: u64, data: []const u8) Stop!problems_of.Found {
        @branchHint(.cold);
        var silent = Silent{};
        var walk = try self.beginWalk(Silent, table, one, &silent);
        const found = try self.endWalk(&walk, walk.run(), table, one);
        if (found.problems == 0) return error.Odd;
        self.walk.is_partial = true;
        defer self.walk.is_partial = false;
        var after: u64 = undefined;
        self.at += try self.summaryOf(table, one, index, data, &after);
        return found;
    }

    /// A walk of the body of a message.
    fn beginWalk(self: *Self, comptime Out: type, table: *const Table, one: *const Message, out: *Out) Stop!Walk(Out) {
        const lines = self.lines;
        const program = table.program orelse return error.Odd;
        if (one.size > lines.most) return error.Odd;
        const call = lines.call;
        call.batches_wanted = 0;
        call.records = 0;
        call.truncated = 0;
        call.looked_at = 0;
        const data = try lines.source.found.bytes(one);
        return Walk(Out).init(call, programs.Program.at(program), data, one.body, out, null);
    }

    /// What such a walk has found.
    fn endWalk(self: *Self, walk: anytype, ended: Error!usize, table: *const Table, one: *const Message) Stop!problems_of.Found {
        const lines = self.lines;
        const after = ended catch |reason| return if (lines.call.controls_wanted != 0) error.NewControls else reason;
        if (walk.account.wanting) return error.Compressed;
        if (walk.account.used != lines.call.batches_given) return error.Odd;
        const data = try lines.source.found.bytes(one);
        return problems_of.take(walk, after, data, one.body, &lines.wordings, &table.careful);
    }

    /// Writes the lines below a message's own for its problems.
    fn problemLines(self: *Self, table: *const Table, found: *const problems_of.Found) Stop!void {
        @branchHint(.cold);
        const lines = self.lines;
        const paint = lines.summaries.paint orelse return error.Odd;
        const below = table.below.get() orelse "";
        // Problems of all such messages count, too.
        if (below.len > 0 and lines.style == null) return error.Odd;
        var shown: u32 = 0;
        var reader = problems_of.NotedReader{ .bytes = lines.call.notes[0..found.noted] };
        while (reader.next()) |note| {
            if (note.kind == 0) continue;
            if (lines.style == null and shown == PROBLEMS_SHOWN) break;
            shown += 1;
            try self.spaces(PROBLEM_INDENT);
            try self.put(paint.warning.get() orelse "");
            try self.put(try problems_of.kindOf(&lines.wordings, note.kind));
            try self.put(": ");
            try problems_of.detail(self, &note, &lines.wordings, &table.careful);
            try self.put(" (at byte ");
            try self.integer(@intCast(note.position));
            try self.put(")");
            try self.put(paint.reset.get() orelse "");
            try self.put("\n");
        }
        if (shown == found.problems) return;
        try self.spaces(PROBLEM_INDENT);
        try self.put(paint.warning.get() orelse "");
        try self.put("+");
        try self.integer(found.problems - shown);
        try self.put(" more problems");
        try self.put(paint.reset.get() orelse "");
        try self.put("\n");
    }

    pub inline fn put(self: *Self, text: []const u8) Error!void {
        if (text.len > self.bytes.len - self.at) return error.NoRoom;
        @memcpy(self.bytes[self.at..][0..text.len], text);
        self.at += text.len;
    }

    fn spaces(self: *Self, count: u64) Error!void {
        var left = count;
        while (left > SPACES.len) : (left -= SPACES.len) try self.put(&SPACES);
        try self.put(SPACES[0..left]);
    }

    fn mark(self: *Self, kind: text_columns.Kind) Error!void {
        try self.put(&.{ text_columns.MARK, @intFromEnum(kind) });
    }

    /// The end of a column, after a text of this width.
    fn column(self: *Self, kind: text_columns.Kind, width: u64) Error!void {
        try self.mark(kind);
        try self.put(&text_columns.digits(2, @min(width, text_columns.MAX_WIDTH)));
    }

    fn number(self: *Self, comptime front: []const u8, value: i64, kind: text_columns.Kind) Error!void {
        const begin = self.at;
        try self.put(front);
        try self.integer(value);
        try self.column(kind, self.at - begin);
    }

    pub fn integer(self: *Self, value: i64) Error!void {
        var digits: [20]u8 = undefined;
        try self.put(digits[times.decimal(&digits, value)..]);
    }

    /// A client id as `printable.word` shows it, for printable ASCII; others are `Odd`.
    fn client(self: *Self, client_id: ?[]const u8) Error!void {
        const text = client_id orelse {
            try self.put("-");
            return self.column(.client, 1);
        };
        var is_quoted = text.len == 0;
        var width: u64 = 0;
        for (text, 0..) |character, place| {
            // The omitted part is counted in characters, so it must be ASCII.
            if (character >= 0x80) return error.Odd;
            if (place >= CLIENT_WIDTH) continue;
            switch (character) {
                0...0x1F, 0x7F, '\\' => return error.Odd,
                ' ', ',', ';', '=', '"', '\'', '(', ')', '[', ']', '{', '}' => is_quoted = true,
                else => {},
            }
        }
        const shown = text[0..@min(text.len, CLIENT_WIDTH)];
        const begin = self.at;
        if (is_quoted) {
            try self.put("\"");
            for (shown) |character| {
                if (character == '"') try self.put("\\");
                try self.put(&.{character});
            }
            try self.put("\"");
        } else try self.put(shown);
        width = self.at - begin;
        if (text.len > shown.len) {
            const rest = self.at;
            try self.put("… +");
            try self.integer(@intCast(text.len - shown.len));
            // The ellipsis is one character of three bytes.
            width += self.at - rest - 2;
        }
        try self.column(.client, width);
    }

    /// A duration, right-aligned.
    fn latency(self: *Self, nanoseconds: i64) Error!void {
        const found = try Duration.of(nanoseconds);
        if (found.width < LATENCY_WIDTH) try self.spaces(LATENCY_WIDTH - found.width);
        try self.put(found.bytes[0..found.size]);
    }

    /// Writes the place of a message, and its body as a tree.
    fn content(
        self: *Self,
        style: *const Style,
        table: *const Table,
        one: *const Message,
        index: u64,
        number_of: i64,
        noted: *const problems_of.Found,
    ) Stop!void {
        const first = one.first_packet & lines_of.PACKET_NUMBER;
        const last = one.last_packet & lines_of.PACKET_NUMBER;
        try self.spaces(tree.MARGIN);
        try self.put(style.dim.get() orelse "");
        try self.put("conn ");
        try self.integer(number_of);
        try self.put(if (first == last) ", packet " else ", packets ");
        try self.integer(first);
        if (first != last) {
            try self.put("-");
            try self.integer(last);
        }
        try self.put(", ");
        try self.integer(one.size);
        try self.put(" bytes");
        if (!one.flags.request) {
            const found = try Duration.of(one.duration);
            try self.put(", took ");
            try self.put(found.bytes[0..found.size]);
        }
        try self.put(style.reset.get() orelse "");
        try self.put("\n");
        if (table.address != null) try self.body(style, table, one, index, noted);
    }

    /// Writes a body; `noted`: what there is to report of it.
    fn body(
        self: *Self,
        style: *const Style,
        table: *const Table,
        one: *const Message,
        index: u64,
        noted: *const problems_of.Found,
    ) Stop!void {
        const lines = self.lines;
        const data = try lines.source.found.bytes(one);
        const names = lines.summaries.names;
        if (names) |some| some.begin(index, table.teaches != 0);
        var out = Tree{
            .bytes = self.bytes,
            .at = self.at,
            .style = style,
            .paint = lines.summaries.paint orelse return error.Odd,
            .frames = self.frames,
            .dates = &self.dates,
        };
        var walk = try self.beginWalk(Tree, table, one, &out);
        walk.names = names;
        const ended = walk.run();
        if (names) |some| if (some.isAsking()) return error.Asks;
        const is_written = if (noted.ended and out.page == null) out.raw(data[one.body..]) else {};
        if (out.page) |page| {
            self.page = page;
            return error.NewPage;
        }
        const found = try self.endWalk(&walk, ended, table, one);
        try is_written;
        // Otherwise the summary has not shown it.
        if (found.problems != noted.problems) return error.Odd;
        self.at = out.at;
    }
};
