//! What is said beside a value in a tree: names of enums, dates of times. `tree` is a `tree.Tree`.
//!
//! The functions return the columns that they write.

const Error = @import("reader.zig").Error;
const std = @import("std");
const styles = @import("tree_style.zig");
const Text = @import("lines.zig").Text;
const times = @import("times.zig");

const Note = styles.Note;

/// Times from here on are beyond the year 9999 (`times.milliseconds_date`).
const TIME_END = 253_402_300_800_000;

/// What is said of a number.
pub fn ofNumber(tree: anytype, value: i64) Error!usize {
    const number = @intFromEnum(tree.note);
    switch (tree.note) {
        .none => return 0,
        .time => return date(tree, value),
        .error_code => {
            const found = tree.paint.name(value) orelse "unknown error";
            return annotation(tree, found, if (value == 0) &tree.paint.dim else &tree.paint.failure);
        },
        _ => {},
    }
    for (try enumOf(tree, number)) |*one| {
        if (one.key.text == null and one.number == value) {
            return annotation(tree, one.name.get() orelse return error.Odd, &tree.style.note);
        }
    }
    return if (number >= Note.TIMES) date(tree, value) else 0;
}

/// What is said of a text.
pub fn ofText(tree: anytype, text: []const u8) Error!usize {
    const number = @intFromEnum(tree.note);
    if (number < Note.FIRST_ENUM) return 0;
    for (try enumOf(tree, number)) |*one| {
        const found = one.key.get() orelse continue;
        if (std.mem.eql(u8, found, text)) {
            return annotation(tree, one.name.get() orelse return error.Odd, &tree.style.note);
        }
    }
    return 0;
}

fn enumOf(tree: anytype, number: u8) Error![]const styles.EnumValue {
    const index = (number & ~@as(u8, Note.TIMES)) -% Note.FIRST_ENUM;
    if (index >= tree.style.enums_size) return error.Odd;
    const found = &tree.style.enums[index];
    return found.values[0..found.size];
}

/// The date of a time in milliseconds; nothing for codes.
fn date(tree: anytype, value: i64) Error!usize {
    if (value <= 0 or value >= TIME_END) return 0;
    var text = tree.dates.ofSecond(@divFloor(value, 1000))[0..24].*;
    times.write(3, text[20..23], @intCast(@mod(value, 1000)));
    text[23] = 'Z';
    return annotation(tree, &text, &tree.style.note);
}

fn annotation(tree: anytype, text: []const u8, colour: *const Text) Error!usize {
    try tree.byte(' ');
    try tree.put(colour.get() orelse "");
    try tree.byte('(');
    try tree.put(text);
    try tree.byte(')');
    try tree.put(tree.style.reset.get() orelse "");
    return text.len + 3;
}
