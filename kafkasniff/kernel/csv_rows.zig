//! Messages as rows of CSV, without their bodies. The specification is `kafkasniff/sinks/csv.py`.

const feed = @import("feed_found.zig");
const lines_of = @import("lines.zig");
const problems_of = @import("line_problems.zig");
const std = @import("std");
const times = @import("times.zig");

const Error = @import("reader.zig").Error;
const Json = @import("json.zig").Json;

pub const Row = struct {
    message: *const feed.Message,
    number: i64,
    time: []const u8,
    capture: []const u8,
    connection: *const lines_of.Connection,
    kind: *const lines_of.Kind,
    client_id: ?[]const u8,
    found: problems_of.Found,
};

/// Writes the row of a message. Texts with anything but printable ASCII are `Odd`.
pub fn row(lines: *const lines_of.Lines, out: *Json, of: Row) Error!void {
    const message = of.message;
    try out.put(if (message.flags.request) "request," else "response,");
    try out.put(of.time);
    try out.byte(',');
    try out.put(of.capture);
    try out.byte(',');
    try out.integer(of.connection.number);
    try out.byte(',');
    try out.integer(of.number);
    try out.byte(',');
    try out.put(of.connection.text[0..of.connection.size]);
    try out.byte(',');
    try out.put(of.kind.text.get() orelse "");
    try out.byte(',');
    try out.integer(message.correlation);
    try out.byte(',');
    if (of.client_id) |client_id| try text(out, client_id);
    try out.byte(',');
    try out.integer(message.size);
    try out.byte(',');
    try out.integer(message.first_packet & lines_of.PACKET_NUMBER);
    try out.byte(',');
    try out.integer(message.last_packet & lines_of.PACKET_NUMBER);
    try out.byte(',');
    if (!message.flags.request) try milliseconds(out, message.latency);
    try out.byte(',');
    if (!message.flags.request) try milliseconds(out, message.duration);
    try out.byte(',');
    try errors(lines, out, of.found.noted);
    try out.byte(',');
    try problems(lines, out, &of);
    try out.byte('\n');
}

/// A text of the capture. Spreadsheets evaluate those that begin like a formula.
fn text(out: *Json, value: []const u8) Error!void {
    const begin = out.at;
    for (value) |character| {
        if (character < 0x20 or character > 0x7E or character == '"' or character == '\\') return error.Odd;
    }
    if (value.len > 0 and std.mem.indexOfScalar(u8, "=+-@", value[0]) != null) try out.byte('\'');
    try out.put(value);
    try quote(out, begin);
}

/// Quotes the cell that begins here if it has a comma.
fn quote(out: *Json, begin: usize) Error!void {
    if (std.mem.indexOfScalar(u8, out.bytes[begin..out.at], ',') == null) return;
    try out.put("\"\"");
    std.mem.rotate(u8, out.bytes[begin .. out.at - 1], out.at - 2 - begin);
}

fn errors(lines: *const lines_of.Lines, out: *Json, noted: usize) Error!void {
    if (noted == 0) return;
    const begin = out.at;
    var reader = problems_of.NotedReader{ .bytes = lines.call.notes[0..noted] };
    while (reader.next()) |note| {
        if (note.kind != 0) continue;
        if (out.at > begin) try out.put("; ");
        if (lines_of.errorName(lines, note.facts[0])) |name| {
            try out.put(name);
        } else {
            try out.put("error ");
            try out.integer(note.facts[0]);
        }
        try out.put(" at ");
        try out.put(note.path);
    }
    try quote(out, begin);
}

fn problems(lines: *const lines_of.Lines, out: *Json, of: *const Row) Error!void {
    const begin = out.at;
    try out.put(of.kind.problems.get() orelse "");
    if (of.found.problems > 0) {
        @branchHint(.cold);
        var reader = problems_of.NotedReader{ .bytes = lines.call.notes[0..of.found.noted] };
        while (reader.next()) |note| {
            if (note.kind == 0) continue;
            if (out.at > begin) try out.put("; ");
            try out.put(try problems_of.kindOf(&lines.wordings, note.kind));
            try out.put(": ");
            try problems_of.detail(out, &note, &lines.wordings, &of.kind.careful);
        }
    }
    try quote(out, begin);
}

/// Nanoseconds as milliseconds, in the digits of Python's `repr`.
fn milliseconds(out: *Json, nanoseconds: i64) Error!void {
    const value: u64 = @abs(nanoseconds);
    if (value == 0 or value >= 100) return lines_of.milliseconds(out, nanoseconds);
    if (nanoseconds < 0) try out.byte('-');
    if (value < 10) {
        try out.byte('0' + @as(u8, @intCast(value)));
        return out.put("e-06");
    }
    try out.byte('0' + @as(u8, @intCast(value / 10)));
    if (value % 10 > 0) {
        try out.byte('.');
        try out.byte('0' + @as(u8, @intCast(value % 10)));
    }
    try out.put("e-05");
}
