//! Writes tagged fields; `walk` is a `walk.Walk`.

const notes_of = @import("walk_notes.zig");
const programs = @import("program.zig");

const Error = @import("reader.zig").Error;
const Failure = notes_of.Failure;
const Op = programs.Op;
const Place = notes_of.Place;
const signed = notes_of.signed;

/// Writes a tag section of `count` fields; `start`: where it begins.
pub fn section(
    walk: anytype,
    op: *const Op,
    first: u32,
    parent: ?*const Place,
    start: usize,
    count: u64,
    members: *usize,
) Failure!void {
    const place = Place{ .parent = parent, .op = null };
    const room = walk.reader.left();
    if (count > room / 2) return walk.fail(.long_tag_section, &place, start, .{ signed(count), signed(room), 0 });
    const outer = walk.reader.bytes;
    defer walk.reader.bytes = outer;
    var previous: i64 = -1;
    var shown_unknown = false;
    for (0..count) |number| {
        const begin = walk.reader.at;
        const tag = walk.reader.varint() catch return walk.badVarint(begin, &place);
        const size_at = walk.reader.at;
        const size = walk.reader.varint() catch return walk.badVarint(size_at, &place);
        if (size > walk.reader.left()) {
            return walk.fail(.cut_tag, &place, begin, .{ signed(tag), signed(size), signed(walk.reader.left()) });
        }
        if (signed(tag) <= previous) return error.Odd;
        previous = signed(tag);
        const stop = walk.reader.at + @as(usize, @intCast(size));
        if (known(walk.program, op, first, tag)) |index| {
            const field_op = &walk.program.ops[index];
            try walk.key(field_op, members.* == 0);
            walk.reader.bytes = outer[0..stop];
            walk.field(index, parent) catch |reason| {
                // A tagged field that does not fit is written with the bytes of an unknown one.
                return if (reason == error.Ended) error.Odd else reason;
            };
            walk.reader.bytes = outer;
            if (walk.reader.at != stop) return error.Odd;
            members.* += 1;
        } else if (@TypeOf(walk.out.*).is_tree or @TypeOf(walk.*).blanks) {
            return error.Odd;
        } else if (!shown_unknown) {
            // All unknown tags are written at the position of the first one.
            shown_unknown = true;
            try walk.out.key("\"_unknown_tags\":", members.* == 0);
            walk.reader.at = begin;
            try unknownTags(walk, op, first, count - number);
            walk.reader.at = stop;
            members.* += 1;
        } else {
            walk.reader.at = stop;
        }
    }
}

/// The op of a tagged field.
fn known(program: programs.Program, op: *const Op, first: u32, tag: u64) ?u32 {
    var index = first;
    for (0..op.tagged) |_| {
        const field_op = &program.ops[index];
        if (field_op.tag == tag) return index;
        index = field_op.next;
    }
    return null;
}

/// Writes those of the next `count` tagged fields that have no definition, up to a truncated one.
fn unknownTags(walk: anytype, op: *const Op, first: u32, count: u64) Error!void {
    const mark = try walk.out.openList();
    var written: usize = 0;
    for (0..count) |_| {
        const tag = walk.reader.varint() catch break;
        const size = walk.reader.varint() catch break;
        const value = walk.reader.take(size) catch break;
        if (known(walk.program, op, first, tag) != null) continue;
        if (walk.unknown == 0) return error.Odd;
        walk.unknown -= 1;
        try walk.out.element(written == 0);
        written += 1;
        const one = try walk.out.openMap(2, 0);
        try walk.out.name("tag", true);
        try walk.out.integer(@intCast(tag));
        if (walk.hide) {
            try walk.out.name("redacted", false);
            try walk.out.integer(@intCast(size));
        } else if (@TypeOf(walk.out.*).is_final and walk.hides_tags) {
            try walk.out.put(",");
            try walk.out.standIn(walk.account.hiding.?, value);
        } else {
            try walk.out.name("base64", false);
            try walk.out.encoded(value);
        }
        try walk.out.closeMap(one, 2);
    }
    try walk.out.closeList(mark, written);
}
