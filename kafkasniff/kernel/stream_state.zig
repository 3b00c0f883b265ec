//! The state of a connection as bytes: a walk over its types, so that a new attribute needs no code here.
//!
//! It depends on the packets alone, not on batches, so that equal states mean equal results. The bytes begin with a
//! checksum of the layout: a state of another build is refused.

const connections = @import("stream_connection.zig");
const Connection = connections.Connection;
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const std = @import("std");

const MAGIC = "kafkasniff streams 1\n";
const VERSION = std.hash.Crc32.hash(describe(Connection));

fn isList(comptime T: type) bool {
    return @typeInfo(T) == .@"struct" and @hasField(T, "items") and @hasField(T, "capacity");
}

fn isQueue(comptime T: type) bool {
    return @typeInfo(T) == .@"struct" and @hasField(T, "list") and @hasField(T, "head");
}

/// An index is made again.
fn isDerived(comptime T: type) bool {
    return @typeInfo(T) == .@"struct" and @hasDecl(T, "derived");
}

fn isTransient(comptime T: type, comptime name: []const u8) bool {
    return @hasDecl(T, "transient") and @hasField(@TypeOf(T.transient), name);
}

/// The names and types of all attributes.
fn describe(comptime T: type) []const u8 {
    @setEvalBranchQuota(1_000_000);
    return switch (@typeInfo(T)) {
        .optional => |o| "?" ++ describe(o.child),
        .array => |a| std.fmt.comptimePrint("[{d}]", .{a.len}) ++ describe(a.child),
        .pointer => |p| (if (p.size == .one) "^" else "*") ++ describe(p.child),
        .int => |i| std.fmt.comptimePrint("{s}{d}", .{ @tagName(i.signedness), i.bits }),
        .bool => "b",
        .@"enum" => |n| std.fmt.comptimePrint("e{d}", .{n.field_names.len}),
        .@"struct" => blk: {
            if (isQueue(T)) break :blk "q" ++ describe(T.Item);
            if (isDerived(T)) break :blk "-";
            if (isList(T)) break :blk "l" ++ describe(std.meta.Child(@FieldType(T, "items")));
            var text: []const u8 = "{";
            for (std.meta.fieldNames(T)) |name| text = text ++ name ++ ":" ++ describe(@FieldType(T, name)) ++ ",";
            break :blk text ++ "}";
        },
        else => @typeName(T),
    };
}

fn raw(e: *Engine, out: *std.ArrayList(u8), value: anytype) void {
    out.appendSlice(e.gpa, std.mem.asBytes(&value)) catch exhausted();
}

fn write(e: *Engine, out: *std.ArrayList(u8), comptime T: type, value: *const T) void {
    switch (@typeInfo(T)) {
        .int => raw(e, out, value.*),
        .bool => raw(e, out, @as(u8, @intFromBool(value.*))),
        .@"enum" => raw(e, out, @backingInt(value.*)),
        .optional => |o| {
            raw(e, out, @as(u8, @intFromBool(value.* != null)));
            if (value.*) |*present| write(e, out, o.child, present);
        },
        .array => |a| for (value) |*one| write(e, out, a.child, one),
        .pointer => |p| if (p.size == .one) write(e, out, p.child, value.*) else {
            raw(e, out, @as(u64, value.len));
            out.appendSlice(e.gpa, value.*) catch exhausted();
        },
        .@"struct" => if (comptime isQueue(T)) {
            writeAll(e, out, T.Item, value.items());
        } else if (comptime isDerived(T)) {} else if (comptime isList(T)) {
            writeAll(e, out, std.meta.Child(@FieldType(T, "items")), value.items);
        } else inline for (comptime std.meta.fieldNames(T)) |name| {
            if (comptime !isTransient(T, name)) write(e, out, @FieldType(T, name), &@field(value, name));
        },
        else => @compileError("no state of " ++ @typeName(T)),
    }
}

fn writeAll(e: *Engine, out: *std.ArrayList(u8), comptime T: type, items: []const T) void {
    raw(e, out, @as(u64, items.len));
    if (T == u8) {
        out.appendSlice(e.gpa, items) catch exhausted();
    } else for (items) |*one| write(e, out, T, one);
}

const Error = error{Invalid};

const Reader = struct {
    rest: []const u8,

    fn take(reader: *Reader, n: u64) Error![]const u8 {
        if (n > reader.rest.len) return error.Invalid;
        defer reader.rest = reader.rest[n..];
        return reader.rest[0..n];
    }

    fn get(reader: *Reader, comptime T: type) Error!T {
        var value: T = undefined;
        @memcpy(std.mem.asBytes(&value), try reader.take(@sizeOf(T)));
        return value;
    }

    fn read(reader: *Reader, e: *Engine, comptime T: type, value: *T) Error!void {
        switch (@typeInfo(T)) {
            .int => value.* = try reader.get(T),
            .bool => value.* = try reader.get(u8) != 0,
            .@"enum" => |n| value.* = std.enums.fromInt(T, try reader.get(n.tag_type)) orelse return error.Invalid,
            .optional => |o| if (try reader.get(u8) != 0) {
                // Only then: that a slice is not null shows in its address.
                var present: o.child = undefined;
                try reader.read(e, o.child, &present);
                value.* = present;
            } else {
                value.* = null;
            },
            .array => |a| for (value) |*one| try reader.read(e, a.child, one),
            .pointer => |p| if (p.size == .one) {
                value.* = e.gpa.create(p.child) catch exhausted();
                try reader.read(e, p.child, value.*);
            } else {
                value.* = e.gpa.dupe(u8, try reader.take(try reader.get(u64))) catch exhausted();
            },
            .@"struct" => if (comptime isQueue(T)) {
                value.* = .{};
                try reader.readAll(e, T.Item, &value.list);
            } else if (comptime isDerived(T)) {
                value.* = .{};
            } else if (comptime isList(T)) {
                value.* = .empty;
                try reader.readAll(e, std.meta.Child(@FieldType(T, "items")), value);
            } else inline for (comptime std.meta.fieldNames(T)) |name| {
                if (comptime isTransient(T, name)) {
                    @field(value, name) = @field(T.transient, name);
                } else try reader.read(e, @FieldType(T, name), &@field(value, name));
            },
            else => @compileError("no state of " ++ @typeName(T)),
        }
    }

    fn readAll(reader: *Reader, e: *Engine, comptime T: type, list: *std.ArrayList(T)) Error!void {
        const n = try reader.get(u64);
        // Each item takes at least a byte.
        if (n > reader.rest.len) return error.Invalid;
        if (T == u8) {
            list.appendSlice(e.gpa, try reader.take(n)) catch exhausted();
            return;
        }
        list.ensureTotalCapacityPrecise(e.gpa, n) catch exhausted();
        for (0..n) |_| {
            const one = list.addOneAssumeCapacity();
            try reader.read(e, T, one);
        }
    }
};

pub fn save(e: *Engine, c: *const Connection, out: *std.ArrayList(u8)) void {
    out.appendSlice(e.gpa, MAGIC) catch exhausted();
    raw(e, out, VERSION);
    const start = out.items.len;
    raw(e, out, @as(u32, 0));
    write(e, out, Connection, c);
    const checksum = std.hash.Crc32.hash(out.items[start + 4 ..]);
    @memcpy(out.items[start..][0..4], std.mem.asBytes(&checksum));
}

/// The connection continues in this engine. A state is trusted as far as its checksum: it refers to places within its own
/// lists.
pub fn load(e: *Engine, bytes: []const u8) Error!*Connection {
    var reader = Reader{ .rest = bytes };
    if (!std.mem.eql(u8, try reader.take(MAGIC.len), MAGIC)) return error.Invalid;
    if (try reader.get(u32) != VERSION) return error.Invalid;
    if (try reader.get(u32) != std.hash.Crc32.hash(reader.rest)) return error.Invalid;
    const c = e.newConnection();
    try reader.read(e, Connection, c);
    if (reader.rest.len != 0) return error.Invalid;
    if (c.kafka.talk) |talk| {
        talk.dialogue.ledger.reindex(e.gpa, e.secret[0]);
        e.kept_bytes += talk.dialogue.ledger.keptBytes();
        talk.dialogue.early.reindex(e.gpa, e.secret[1]);
    }
    e.enterLoaded(c);
    return c;
}
