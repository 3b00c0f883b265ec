//! Reads or skips fields of a valid body, by the ops of its program.

const programs = @import("program.zig");
const reading = @import("reader.zig");

const Error = reading.Error;
const Op = programs.Op;

pub const Fields = struct {
    program: programs.Program,
    reader: reading.Reader,

    const Self = @This();

    /// A length, or the count of an array; null for -1.
    pub fn length(self: *Self, field: *const Op) Error!?usize {
        const size: i64 = if (field.flags.compact)
            @as(i64, @intCast(try self.reader.varint())) - 1
        else if (field.kind == .string and !field.flags.array)
            try self.reader.int(i16)
        else
            try self.reader.int(i32);
        return if (size < 0) null else @intCast(size);
    }

    /// The length of a string, or of a string in an array.
    pub fn textLength(self: *Self, field: *const Op) Error!?usize {
        const size: i64 = if (field.flags.compact)
            @as(i64, @intCast(try self.reader.varint())) - 1
        else
            try self.reader.int(i16);
        if (size < -1) return error.Odd;
        return if (size < 0) null else @intCast(size);
    }

    pub fn number(self: *Self, field: *const Op) Error!i64 {
        return switch (field.kind) {
            .int8 => try self.reader.int(i8),
            .int16, .error_code => try self.reader.int(i16),
            .uint16 => try self.reader.int(u16),
            .int32 => try self.reader.int(i32),
            .uint32 => try self.reader.int(u32),
            .int64 => try self.reader.int(i64),
            else => error.Odd,
        };
    }

    pub fn skip(self: *Self, index: u32) Error!void {
        const field = &self.program.ops[index];
        var count: usize = if (field.flags.array) try self.length(field) orelse 0 else 1;
        if (field.kind == .structure) {
            if (!field.flags.array and field.flags.nullable) {
                if (try self.reader.int(i8) < 0) return;
            }
            while (count > 0) : (count -= 1) {
                var child = index + 1;
                for (0..field.fields) |_| {
                    try self.skip(child);
                    child = self.program.ops[child].next;
                }
                if (field.flags.flexible) try self.skipTags();
            }
            return;
        }
        const size: usize = switch (field.kind) {
            .boolean, .int8 => 1,
            .int16, .uint16, .error_code => 2,
            .int32, .uint32 => 4,
            .int64, .float64 => 8,
            .uuid => 16,
            .string => {
                while (count > 0) : (count -= 1) _ = try self.reader.take(try self.textLength(field) orelse 0);
                return;
            },
            else => {
                if (field.flags.array) return error.Odd;
                _ = try self.reader.take(try self.length(field) orelse 0);
                return;
            },
        };
        _ = try self.reader.take(count * size);
    }

    /// Skips a tag section in which no field has a role: they are rare.
    pub fn tags(self: *Self, op: *const Op, first: u32) Error!void {
        for (0..@intCast(try self.reader.varint())) |_| {
            const tag = try self.reader.varint();
            var index = first;
            for (0..op.tagged) |_| {
                const field = &self.program.ops[index];
                if (field.tag == tag and field.role != 0) return error.Odd;
                index = field.next;
            }
            _ = try self.reader.take(@intCast(try self.reader.varint()));
        }
    }

    pub fn skipTags(self: *Self) Error!void {
        for (0..@intCast(try self.reader.varint())) |_| {
            _ = try self.reader.varint();
            _ = try self.reader.take(@intCast(try self.reader.varint()));
        }
    }
};
