//! Copies the fields of a body that have a role, and the counts of the arrays around them. Bodies with equal copies have
//! equal fields, whatever their other fields are.

const Fields = @import("fields.zig").Fields;
const programs = @import("program.zig");
const reading = @import("reader.zig");

const Error = reading.Error;

/// `kafkasniff/native/names.py` has the same numbers.
const Role = enum(u8) {
    none = 0,
    /// A struct, or an array of structs, with such fields.
    inside = 1,
    chosen = 2,
    _,
};

const Copy = struct {
    fields: Fields,
    out: []u8,
    used: usize = 0,

    const Self = @This();

    fn structure(self: *Self, index: u32) Error!void {
        const op = &self.fields.program.ops[index];
        var child = index + 1;
        for (0..op.fields) |_| {
            const field = &self.fields.program.ops[child];
            const start = self.fields.reader.at;
            switch (@as(Role, @enumFromInt(field.role))) {
                .none => try self.fields.skip(child),
                .inside => {
                    if (field.kind != .structure or (field.flags.nullable and !field.flags.array)) return error.Odd;
                    const count = if (field.flags.array) try self.fields.length(field) orelse 0 else 1;
                    try self.put(self.fields.reader.bytes[start..self.fields.reader.at]);
                    for (0..count) |_| try self.structure(child);
                },
                .chosen => {
                    try self.fields.skip(child);
                    try self.put(self.fields.reader.bytes[start..self.fields.reader.at]);
                },
                _ => return error.Odd,
            }
            child = field.next;
        }
        if (op.flags.flexible) try self.fields.tags(op, child);
    }

    fn put(self: *Self, bytes: []const u8) Error!void {
        if (bytes.len > self.out.len - self.used) return error.NoRoom;
        @memcpy(self.out[self.used..][0..bytes.len], bytes);
        self.used += bytes.len;
    }
};

/// Copies the fields of the body at `data[start..]`; returns the size of the copy.
pub fn copy(program: programs.Program, data: []const u8, start: usize, out: []u8) Error!usize {
    var made = Copy{ .fields = .{ .program = program, .reader = .{ .bytes = data, .at = start } }, .out = out };
    try made.structure(0);
    return made.used;
}
