//! UTF-8: whether bytes are text, and the length of a character.

const Error = @import("reader.zig").Error;

pub const WIDTH = 16;
pub const Block = @Vector(WIDTH, u8);

/// The length of the non-ASCII character at the beginning of `text`; `Odd` if it is not UTF-8 (RFC 3629).
pub fn sequence(text: []const u8) Error!usize {
    const first = text[0];
    const size: usize = switch (first) {
        0xC2...0xDF => 2,
        0xE0...0xEF => 3,
        0xF0...0xF4 => 4,
        else => return error.Odd,
    };
    if (text.len < size) return error.Odd;
    const low: u8 = switch (first) {
        0xE0 => 0xA0,
        0xF0 => 0x90,
        else => 0x80,
    };
    const high: u8 = switch (first) {
        0xED => 0x9F,
        0xF4 => 0x8F,
        else => 0xBF,
    };
    if (text[1] < low or text[1] > high) return error.Odd;
    for (text[2..size]) |next| {
        if (next & 0xC0 != 0x80) return error.Odd;
    }
    return size;
}

/// Whether `text` is UTF-8.
pub fn isText(text: []const u8) bool {
    var at: usize = 0;
    while (at < text.len) {
        while (text.len - at >= WIDTH) {
            const block: Block = text[at..][0..WIDTH].*;
            if (@reduce(.Or, block) >= 0x80) break;
            at += WIDTH;
        }
        if (at >= text.len) break;
        if (text[at] < 0x80) {
            at += 1;
        } else {
            at += sequence(text[at..]) catch return false;
        }
    }
    return true;
}
