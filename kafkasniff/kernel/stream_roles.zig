//! Fields that pairing reads, by their roles in a program (`kafka/schema/program.py`): nothing else knows where they are.

const Fields = @import("fields.zig").Fields;
const programs = @import("program.zig");
const std = @import("std");

const Role = enum(u8) { none, silences, mechanism, code, throttle, _ };

pub const Found = struct {
    /// The request gets no response.
    silent: bool = false,
    /// The mechanism of the raw tokens that follow the response; empty if it is null or truncated.
    mechanism: ?[]const u8 = null,
    /// The error code of a response.
    code: ?i64 = null,
    /// Milliseconds.
    throttle: i64 = 0,
};

/// Reads the body at `at`, or after the tags there; `program`: an address, 0 if no field has a role. A program ends with
/// its last role.
pub fn read(program: u64, bytes: []const u8, at: usize, tagged: bool) Found {
    var found = Found{};
    if (program == 0) return found;
    var fields = Fields{
        .program = .at(@ptrFromInt(program)),
        .reader = .{ .bytes = bytes, .at = at },
    };
    if (tagged) fields.skipTags() catch return found;
    var index: u32 = 1;
    for (0..fields.program.ops[0].fields) |_| {
        const field = &fields.program.ops[index];
        switch (@as(Role, @fromBackingInt(field.role))) {
            .silences => found.silent = (fields.number(field) catch return found) == 0,
            .code => found.code = fields.number(field) catch return found,
            .throttle => found.throttle = fields.number(field) catch return found,
            .mechanism => {
                found.mechanism = "";
                const size = fields.textLength(field) catch return found;
                found.mechanism = fields.reader.take(size orelse 0) catch return found;
            },
            else => fields.skip(index) catch return found,
        }
        index = field.next;
    }
    return found;
}
