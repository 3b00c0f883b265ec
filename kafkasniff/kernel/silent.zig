//! A walk that writes nothing: for the error codes and problems of a body that is not shown.

const Error = @import("reader.zig").Error;
const Hiding = @import("payload.zig").Hiding;
const isText = @import("text.zig").isText;

/// Has the functions of `json.Json`; what that cannot write is `Odd` here as well.
pub const Silent = struct {
    at: usize = 0,
    /// Payload is not looked at.
    hiding: ?*Hiding = null,

    const Self = @This();
    pub const is_final = true;
    pub const is_tree = false;

    pub inline fn save(_: *const Self) usize {
        return 0;
    }
    pub inline fn restore(_: *Self, _: usize) void {}
    pub inline fn put(_: *Self, _: []const u8) Error!void {}
    pub inline fn openMap(_: *Self, _: usize, _: usize) Error!usize {
        return 0;
    }
    pub inline fn closeMap(_: *Self, _: usize, _: usize) Error!void {}
    pub inline fn join(_: *Self) void {}
    pub inline fn closeJoined(_: *Self, _: usize, _: usize) Error!void {}
    pub inline fn key(_: *Self, _: []const u8, _: bool) Error!void {}
    pub inline fn name(_: *Self, comptime _: []const u8, comptime _: bool) Error!void {}
    pub inline fn openArray(_: *Self, _: usize) Error!usize {
        return 0;
    }
    pub inline fn openList(_: *Self) Error!usize {
        return 0;
    }
    pub inline fn session(_: *Self, _: []const u8) Error!void {}
    pub inline fn element(_: *Self, _: bool) Error!void {}
    pub inline fn closeArray(_: *Self) Error!void {}
    pub inline fn endArray(_: *Self, _: usize, _: usize) Error!void {}
    pub inline fn closeList(_: *Self, _: usize, _: usize) Error!void {}
    pub inline fn nothing(_: *Self) Error!void {}
    pub inline fn word(_: *Self, comptime _: []const u8) Error!void {}
    pub inline fn float(_: *Self, _: u64) Error!void {}
    pub inline fn withheld(_: *Self, _: usize, _: usize) Error!void {}
    pub inline fn encoded(_: *Self, _: []const u8) Error!void {}
    pub inline fn integer(_: *Self, _: i64) Error!void {}
    pub inline fn boolean(_: *Self, _: bool) Error!void {}
    pub fn string(_: *Self, text: []const u8) Error!void {
        if (!isText(text)) return error.Odd;
    }
    pub inline fn binary(_: *Self, _: []const u8) Error!void {}
    pub inline fn payload(_: *Self, _: []const u8) Error!void {}
    pub inline fn payloadText(self: *Self, text: []const u8) Error!void {
        return self.string(text);
    }
    pub inline fn standIn(_: *Self, _: *Hiding, _: []const u8) Error!void {}
    pub inline fn uuid(_: *Self, _: *const [16]u8) Error!void {}
};
