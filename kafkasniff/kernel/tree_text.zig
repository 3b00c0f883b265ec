//! Text in trees (`tree.zig`): only visible characters, and how wide they are.
//!
//! The specifications are `kafkasniff/text/printable.py` and `kafkasniff/sinks/tree.py`.

const Error = @import("reader.zig").Error;
const text_of = @import("text.zig");

const WIDTH = text_of.WIDTH;
const HEX = "0123456789abcdef";

/// Characters of a page with how they are shown. Null: not known yet.
pub const Page = extern struct { characters: ?*const [PAGE]Shown };
const PAGE = 256;
pub const Pages = [0x11_0000 / PAGE]Page;

const Shown = enum(u8) {
    escaped = 0,
    one_column = 1,
    two_columns = 2,
    /// It is drawn over the one before.
    no_column = 3,
    _,
};

/// Writes UTF-8 in quotes, as `printable.printable` shows it; anything else is `Odd`. Returns its columns.
pub fn quoted(out: anytype, text: []const u8) Error!usize {
    try out.byte('"');
    var columns: usize = 2;
    var at: usize = 0;
    while (at < text.len) {
        if (text.len - at >= WIDTH and out.bytes.len - out.at >= WIDTH) {
            const block: text_of.Block = text[at..][0..WIDTH].*;
            const Signed = @Vector(WIDTH, i8);
            // As signed numbers, control characters and non-ASCII bytes are the small ones.
            const special = (@as(Signed, @bitCast(block)) < @as(Signed, @splat(0x20))) |
                (block == @as(text_of.Block, @splat('"'))) |
                (block == @as(text_of.Block, @splat('\\'))) |
                (block == @as(text_of.Block, @splat(0x7F)));
            const bits: u16 = @bitCast(special);
            out.bytes[out.at..][0..WIDTH].* = block;
            const plain: usize = if (bits == 0) WIDTH else @ctz(bits);
            out.at += plain;
            at += plain;
            columns += plain;
            if (bits == 0) continue;
        }
        const first = text[at];
        if (first >= 0x80) {
            const size = try text_of.sequence(text[at..]);
            columns += try character(out, text[at..][0..size]);
            at += size;
            continue;
        }
        at += 1;
        switch (first) {
            0...0x1F, 0x7F => columns += try escaped(out, first),
            '"', '\\' => {
                try out.put(&.{ '\\', first });
                columns += 2;
            },
            else => {
                try out.byte(first);
                columns += 1;
            },
        }
    }
    try out.byte('"');
    return columns;
}

/// A character that is not ASCII.
fn character(out: anytype, text: []const u8) Error!usize {
    var code: u32 = text[0] & (@as(u8, 0x7F) >> @intCast(text.len));
    for (text[1..]) |next| code = code << 6 | (next & 0x3F);
    const characters = out.style.pages[code / PAGE].characters orelse {
        out.page = code / PAGE;
        return error.Odd;
    };
    const columns: usize = switch (characters[code % PAGE]) {
        .one_column => 1,
        .two_columns => 2,
        .no_column => 0,
        .escaped, _ => return escaped(out, code),
    };
    try out.put(text);
    return columns;
}

/// A character that would not be visible.
fn escaped(out: anytype, code: u32) Error!usize {
    var made: [10]u8 = undefined;
    const size: usize = if (code <= 0xFF) 4 else if (code <= 0xFFFF) 6 else 10;
    made[0] = '\\';
    made[1] = if (code <= 0xFF) 'x' else if (code <= 0xFFFF) 'u' else 'U';
    var left = code;
    var at = size;
    while (at > 2) : (left >>= 4) {
        at -= 1;
        made[at] = HEX[left & 15];
    }
    try out.put(made[0..size]);
    return size;
}

/// The size of the whole characters of UTF-8, whose last character may be incomplete if `is_cut`; null for other bytes.
pub fn wholeText(bytes: []const u8, is_cut: bool) ?usize {
    if (text_of.isText(bytes)) return bytes.len;
    if (!is_cut) return null;
    for (1..4) |missing| {
        if (missing > bytes.len) return null;
        const size = bytes.len - missing;
        const first = bytes[size];
        if (first < 0x80) return null;
        if (first < 0xC0) continue;
        if (!text_of.isText(bytes[0..size])) return null;
        // Python's decoder takes the first two bytes of a surrogate for those of a character, too.
        if (missing == 2 and first == 0xED and bytes[size + 1] & 0xE0 == 0xA0) return size;
        // With some continuation it would be a character: the only limits are those of its second byte.
        for ([_]u8{ 0x80, 0x90, 0xA0 }) |second| {
            var whole = [_]u8{ first, second, 0x80, 0x80 };
            @memcpy(whole[0..missing], bytes[size..]);
            const length = text_of.sequence(&whole) catch continue;
            if (length > missing) return size;
        }
        return null;
    }
    return null;
}
