//! A body as an indented tree, below the line of text of its message.
//!
//! The specification is `kafkasniff/sinks/tree.py`. `Tree` has the functions of `json.Json`, so that the same walk writes
//! it. Fields without nested fields share lines up to the width. Bodies with unknown tags are `Odd`. `tree_style.zig` has their structures, `tree_notes.zig` what is said beside values.

const encoding = @import("base64.zig");
const notes = @import("tree_notes.zig");
const programs = @import("program.zig");
const shown_text = @import("tree_text.zig");
const std = @import("std");
const styles = @import("tree_style.zig");
const text_of = @import("text.zig");
const times = @import("times.zig");

const Error = @import("reader.zig").Error;
const Hiding = @import("payload.zig").Hiding;
const Note = styles.Note;
const Paint = @import("summary_errors.zig").Paint;
pub const Page = shown_text.Page;
pub const Pages = shown_text.Pages;
pub const Style = styles.Style;

/// As `tree.VALUE_WIDTH` and `tree.MARGIN`.
const VALUE_WIDTH = 400;
/// As `text.RAW_WIDTH`.
const RAW_WIDTH = 256;
pub const MARGIN = 4;
/// Structs and arrays around a value: those of a program, and of the records in it with their control records.
const MAX_FRAMES = 4 * (programs.MAX_DEPTH + 4);
const SPACES: [64]u8 = @splat(' ');
const HEX = "0123456789abcdef";

const Frame = struct {
    is_array: bool,
    /// The first line of an array was written.
    is_open: bool,
    note: Note,
    /// Where the lines of its fields or elements begin.
    indent: u32,
    /// The number of elements; or, if it is not known, the position to insert it at.
    count: usize,
    /// Where a number of elements that is known was written.
    place: usize = 0,
    name: []const u8,
};

const UNKNOWN = std.math.maxInt(usize);

pub const Frames = [MAX_FRAMES]Frame;

pub const Tree = struct {
    bytes: []u8,
    at: usize,
    style: *const Style,
    /// How errors are shown.
    paint: *const Paint,
    /// Open structs and arrays: `frames[0..depth]`.
    frames: *Frames,
    depth: usize = 0,
    dates: *times.Moment,
    /// Columns of the current line after its indentation; 0: it has not begun.
    used: usize = 0,
    /// Where the current value begins, with what separates it from the one before.
    start: usize = 0,
    /// The next line is the first one of an element.
    is_element: bool = false,
    /// The next member.
    label: []const u8 = "",
    note: Note = .none,
    /// The next struct adds to the current one.
    joins: bool = false,
    /// A page of characters that the caller has to add; then the output is not valid.
    page: ?u32 = null,
    /// Payload is shown.
    hiding: ?*Hiding = null,

    const Self = @This();
    pub const is_final = true;
    pub const is_tree = true;

    /// The state that `restore` returns to.
    pub const Mark = struct { at: usize, depth: usize, used: usize, is_element: bool, label: []const u8, note: Note };

    pub inline fn save(self: *const Self) Mark {
        return .{
            .at = self.at,
            .depth = self.depth,
            .used = self.used,
            .is_element = self.is_element,
            .label = self.label,
            .note = self.note,
        };
    }

    pub inline fn restore(self: *Self, mark: Mark) void {
        self.at = mark.at;
        self.depth = mark.depth;
        self.used = mark.used;
        self.is_element = mark.is_element;
        self.label = mark.label;
        self.note = mark.note;
    }

    pub inline fn put(self: *Self, text: []const u8) Error!void {
        if (text.len > self.bytes.len - self.at) return error.NoRoom;
        @memcpy(self.bytes[self.at..][0..text.len], text);
        self.at += text.len;
    }

    pub inline fn byte(self: *Self, value: u8) Error!void {
        if (self.at == self.bytes.len) return error.NoRoom;
        self.bytes[self.at] = value;
        self.at += 1;
    }

    fn spaces(self: *Self, count: usize) Error!void {
        var left = count;
        while (left > SPACES.len) : (left -= SPACES.len) try self.put(&SPACES);
        try self.put(SPACES[0..left]);
    }

    // Structure

    inline fn top(self: *const Self) *Frame {
        return &self.frames[self.depth - 1];
    }

    inline fn push(self: *Self, frame: Frame) Error!void {
        if (self.depth == MAX_FRAMES) return error.Odd;
        self.frames[self.depth] = frame;
        self.depth += 1;
    }

    /// Ends the current line.
    inline fn flush(self: *Self) Error!void {
        if (self.used == 0) return;
        self.used = 0;
        try self.byte('\n');
    }

    /// Begins a line of a struct with this indentation.
    inline fn begin(self: *Self, indent: usize) Error!void {
        if (!self.is_element) return self.spaces(indent);
        self.is_element = false;
        try self.spaces(indent - 2);
        try self.put("- ");
    }

    inline fn putName(self: *Self, name_of: []const u8) Error!void {
        try self.put(self.style.name.get() orelse "");
        try self.put(name_of);
        try self.put(self.style.reset.get() orelse "");
    }

    /// Opens a struct of `count` members, besides optional ones.
    pub fn openMap(self: *Self, count: usize, _: usize) Error!usize {
        if (self.joins) {
            self.joins = false;
            try self.push(self.top().*);
            return 1;
        }
        var indent: usize = MARGIN;
        if (self.depth > 0) {
            // An empty one would be shown as a value.
            if (count == 0) return error.Odd;
            const outer = self.top();
            try self.flush();
            indent = outer.indent + 2;
            if (outer.is_array) {
                self.is_element = true;
            } else {
                try self.begin(outer.indent);
                try self.putName(self.label);
                try self.put(":\n");
            }
        }
        try self.push(.{ .is_array = false, .is_open = true, .note = .none, .indent = @intCast(indent), .count = 0, .name = "" });
        return 0;
    }

    pub fn closeMap(self: *Self, mark: usize, _: usize) Error!void {
        self.depth -= 1;
        if (mark == 0) try self.flush();
    }

    /// The name of the next member, given as `"name":`.
    pub inline fn key(self: *Self, literal: []const u8, _: bool) Error!void {
        self.label = literal[1 .. literal.len - 2];
        self.note = .none;
    }

    pub inline fn name(self: *Self, comptime text: []const u8, comptime _: bool) Error!void {
        self.label = text;
        self.note = if (comptime std.mem.indexOf(u8, text, "timestamp") != null) .time else .none;
    }

    /// Opens an array of `count` elements.
    pub fn openArray(self: *Self, count: usize) Error!usize {
        const indent = self.top().indent + 2;
        try self.push(.{ .is_array = true, .is_open = false, .note = self.note, .indent = indent, .count = count, .name = self.label });
        return 0;
    }

    /// Opens an array whose number of elements is given to `closeList`.
    pub fn openList(self: *Self) Error!usize {
        return self.openArray(UNKNOWN);
    }

    /// Called before each element.
    pub inline fn element(self: *Self, is_first: bool) Error!void {
        if (is_first) try self.openElements();
        self.note = self.top().note;
    }

    fn openElements(self: *Self) Error!void {
        const frame = self.top();
        try self.flush();
        try self.begin(frame.indent - 2);
        try self.putName(frame.name);
        try self.put(": [");
        if (frame.count == UNKNOWN) {
            frame.count = self.at;
        } else {
            frame.place = self.at;
            try self.digits(@intCast(frame.count));
        }
        try self.put("]\n");
        frame.is_open = true;
    }

    pub fn closeArray(self: *Self) Error!void {
        const frame = self.top().*;
        self.depth -= 1;
        if (frame.is_open) return self.flush();
        self.label = frame.name;
        try self.open();
        try self.put("[]");
        try self.close(2);
    }

    pub fn closeList(self: *Self, _: usize, count: usize) Error!void {
        const frame = self.top().*;
        try self.closeArray();
        if (!frame.is_open) return;
        const end = self.at;
        try self.digits(@intCast(count));
        std.mem.rotate(u8, self.bytes[frame.count..self.at], end - frame.count);
    }

    /// Closes an array that ends early; without elements, the caller drops it.
    pub fn endArray(self: *Self, _: usize, count: usize) Error!void {
        const frame = self.top().*;
        self.depth -= 1;
        if (count == 0) return;
        try self.flush();
        var made: [20]u8 = undefined;
        const old = made.len - times.decimal(&made, @intCast(frame.count));
        const digits_of = made[times.decimal(&made, @intCast(count))..];
        const rest_at = frame.place + old;
        @memmove(self.bytes[frame.place + digits_of.len ..][0 .. self.at - rest_at], self.bytes[rest_at..self.at]);
        @memcpy(self.bytes[frame.place..][0..digits_of.len], digits_of);
        self.at -= old - digits_of.len;
    }

    /// Members of the next struct, which is a member's value, follow those of the current one.
    pub fn join(self: *Self) void {
        self.joins = true;
    }

    /// Closes a struct that another one was joined to.
    pub fn closeJoined(self: *Self, mark: usize, _: usize) Error!void {
        try self.closeMap(mark, 0);
    }

    /// The member of a fetch session, as lines.
    pub fn session(self: *Self, lines: []const u8) Error!void {
        try self.flush();
        try self.put(lines);
    }

    // Values

    /// Begins a value: in a struct with its name.
    fn open(self: *Self) Error!void {
        const frame = self.top();
        self.start = self.at;
        if (frame.is_array) return if (self.used > 0) self.put(", ") else self.spaces(frame.indent);
        if (self.used > 0) try self.put("  ") else try self.begin(frame.indent);
        try self.putName(self.label);
        try self.put(": ");
    }

    /// Ends a value of this width. If it does not fit into the line, it moves to a new one.
    fn close(self: *Self, columns: usize) Error!void {
        const frame = self.top();
        const size = columns + if (frame.is_array) 0 else self.label.len + 2;
        if (self.used == 0) {
            self.used = size;
            return;
        }
        // A comma may follow an element.
        const comma = @intFromBool(frame.is_array);
        if (frame.indent + self.used + 2 + comma + size <= self.style.width) {
            self.used += 2 + size;
            return;
        }
        // A line feed and the indentation replace two blanks, or the one after the comma.
        const old = self.start + 2;
        const new = self.start + comma + 1 + frame.indent;
        const end = self.at;
        try self.spaces(new - old);
        @memmove(self.bytes[new..self.at], self.bytes[old..end]);
        self.bytes[self.start + comma] = '\n';
        @memset(self.bytes[self.start + comma + 1 .. new], ' ');
        self.used = size;
    }

    pub fn nothing(self: *Self) Error!void {
        try self.open();
        try self.put("null");
        try self.close(4);
    }

    /// Text that is known at compile time and needs no escapes.
    pub fn word(self: *Self, comptime text: []const u8) Error!void {
        try self.open();
        try self.put("\"" ++ text ++ "\"");
        try self.close(text.len + 2);
    }

    /// Numbers with a fraction are left to Python.
    pub fn float(_: *Self, _: u64) Error!void {
        return error.Odd;
    }

    /// A placeholder for `size` secret bytes.
    pub fn withheld(self: *Self, _: usize, size: usize) Error!void {
        try self.open();
        const begin_at = self.at;
        try self.put("[");
        try self.digits(@intCast(size));
        try self.put(" bytes redacted]");
        try self.close(self.at - begin_at);
    }

    pub fn integer(self: *Self, value: i64) Error!void {
        try self.open();
        const begin_at = self.at;
        try self.digits(value);
        const columns = self.at - begin_at;
        try self.close(columns + try notes.ofNumber(self, value));
    }

    pub fn boolean(self: *Self, value: bool) Error!void {
        if (self.note == .time) self.note = .none;
        try self.open();
        try self.put(if (value) "true" else "false");
        try self.close(@as(usize, 5) - @intFromBool(value) + try notes.ofNumber(self, @intFromBool(value)));
    }

    pub fn uuid(self: *Self, value: *const [16]u8) Error!void {
        var text: [22]u8 = undefined;
        encoding.uuid(&text, value);
        try self.open();
        try self.byte('"');
        try self.put(&text);
        try self.byte('"');
        try self.close(text.len + 2 + try notes.ofText(self, &text));
    }

    /// A string in quotes. Text that is not UTF-8 is `Odd`.
    pub fn string(self: *Self, text: []const u8) Error!void {
        var size = text.len;
        if (size > VALUE_WIDTH) {
            if (!text_of.isText(text)) return error.Odd;
            size = 0;
            for (0..VALUE_WIDTH) |_| {
                if (size == text.len) break;
                size += if (text[size] < 0x80) 1 else try text_of.sequence(text[size..]);
            }
        }
        try self.open();
        const columns = try shown_text.quoted(self, text[0..size]) + try self.rest(text.len - size);
        try self.close(columns + try notes.ofText(self, text));
    }

    /// Bytes: as a string if they are UTF-8, else in hex.
    pub fn binary(self: *Self, value: []const u8) Error!void {
        try self.open();
        try self.close(try self.dump(value, VALUE_WIDTH));
    }

    /// Writes at most `limit` of the bytes. Returns their columns.
    fn dump(self: *Self, value: []const u8, limit: usize) Error!usize {
        const shown = value[0..@min(value.len, limit)];
        if (shown_text.wholeText(shown, value.len > shown.len)) |size| {
            return try shown_text.quoted(self, shown[0..size]) + try self.rest(value.len - size);
        }
        try self.put("0x");
        for (shown) |one| try self.put(&.{ HEX[one >> 4], HEX[one & 15] });
        return 2 + 2 * shown.len + try self.rest(value.len - shown.len);
    }

    /// Writes the bytes of a body that was not read to its end, below it.
    pub fn raw(self: *Self, value: []const u8) Error!void {
        try self.spaces(MARGIN);
        try self.putName("raw");
        try self.put(": ");
        _ = try self.dump(value, RAW_WIDTH);
        try self.byte('\n');
    }

    pub fn payload(self: *Self, value: []const u8) Error!void {
        try self.binary(value);
    }

    pub fn payloadText(self: *Self, value: []const u8) Error!void {
        try self.string(value);
    }

    fn digits(self: *Self, value: i64) Error!void {
        var made: [20]u8 = undefined;
        try self.put(made[times.decimal(&made, value)..]);
    }

    /// The number of bytes that are not shown. Returns its columns.
    fn rest(self: *Self, count: usize) Error!usize {
        if (count == 0) return 0;
        const begin_at = self.at;
        try self.put("… +");
        try self.digits(@intCast(count));
        try self.put(" bytes");
        // The ellipsis is one character of three bytes.
        return self.at - begin_at - 2;
    }
};
