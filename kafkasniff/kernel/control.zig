//! The content of control records: transaction markers, and those of KRaft's quorum.
//!
//! The specification is `kafka/records/record_list.py`, which also gives the name and the layout of each type
//! (`calls.Control`).

const calls = @import("call.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const Walk = @import("walk.zig").Walk;

const Error = reading.Error;

/// Writes the member `_control` of a record. Unknown types, and records with a problem to report, are `Odd`.
pub fn member(out: anytype, key: ?[]const u8, value: ?[]const u8, call: *calls.Call) Error!void {
    const known = call.controls orelse {
        call.controls_wanted = 1;
        return error.Odd;
    };
    // Newer fields of the key are ignored.
    var reader = reading.Reader{ .bytes = key orelse return error.Odd };
    const version = try reader.int(i16);
    const kind = try reader.int(i16);
    const data = value orelse return error.Odd;
    var inside = reading.Reader{ .bytes = data };
    const of_value = try inside.int(i16);
    for (known[0..call.controls_size]) |*one| {
        if (one.type != kind or (one.fronted == 0 and one.version != of_value)) continue;
        try out.name("_control", false);
        const map = try out.openMap(4, 0);
        try out.name("version", true);
        try out.integer(version);
        try out.name("type", false);
        try out.integer(kind);
        try out.name("name", false);
        try out.string(one.name[0..one.name_size]);
        try out.name("value", false);
        try fields(out, one, data, of_value, call);
        return out.closeMap(map, 4);
    }
    return error.Odd;
}

fn fields(out: anytype, control: *const calls.Control, data: []const u8, version: i16, call: *calls.Call) Error!void {
    const program = programs.Program.at(control.program);
    const is_fronted = control.fronted != 0;
    const map = if (is_fronted) try out.openMap(2, 0) else 0;
    if (is_fronted) {
        if (program.ops[0].fields == 0) return error.Odd;
        try out.name("version", true);
        try out.integer(version);
        out.join();
    }
    const begin = out.at;
    // There is no room for notes, so that anything to be noted is `Odd`. Notes of the enclosing message are kept.
    const notes_size = call.notes_size;
    call.notes_size = 0;
    defer call.notes_size = notes_size;
    var walk = Walk(@TypeOf(out.*)).init(call, program, data, if (is_fronted) 2 else 0, out, null);
    if (try walk.run() != data.len) return error.Odd;
    if (!is_fronted) return;
    try out.closeJoined(map, begin);
}
