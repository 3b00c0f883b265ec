//! Lists of texts that the caller looks for in records: names of headers, and texts in keys.

const HeaderKind = @import("call.zig").HeaderKind;
const std = @import("std");

/// The kind of a header's name in a list. Each entry: a uint8 kind, a uint8 length, the text.
pub fn listedKind(name: []const u8, list: []const u8) ?HeaderKind {
    var at: usize = 0;
    while (list.len - at >= 2) {
        const size = list[at + 1];
        if (size > list.len - at - 2) return null;
        if (std.mem.eql(u8, list[at + 2 ..][0..size], name)) return @enumFromInt(list[at]);
        at += 2 + @as(usize, size);
    }
    return null;
}

/// Whether `key` begins with a text of the list (length-prefixed texts).
pub fn beginsWithMark(key: []const u8, list: []const u8) bool {
    var at: usize = 0;
    while (at < list.len) {
        const size = list[at];
        if (size > list.len - at - 1) return false;
        if (std.mem.startsWith(u8, key, list[at + 1 ..][0..size])) return true;
        at += 1 + @as(usize, size);
    }
    return false;
}

/// Whether `key` contains a text of such a list.
pub fn holdsMark(key: []const u8, list: []const u8) bool {
    var at: usize = 0;
    while (at < list.len) {
        const size = list[at];
        if (size == 0 or size > list.len - at - 1) return false;
        const mark = list[at + 1 ..][0..size];
        if (key.len >= size) {
            for (0..key.len - size + 1) |begin| {
                if (key[begin] == mark[0] and std.mem.eql(u8, key[begin..][0..size], mark)) return true;
            }
        }
        at += 1 + @as(usize, size);
    }
    return false;
}
