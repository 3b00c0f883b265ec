//! The exported functions. No state: all memory is the caller's.

const build = @import("build_facts");
pub const calls = @import("call.zig");
pub const columns = @import("columns.zig");
const output = @import("output.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const record_fields = @import("records.zig");
const std = @import("std");
const walking = @import("walk.zig");

pub const crc32 = @import("checksum.zig").crc32;
pub const crc32c = @import("checksum.zig").crc32c;

const Call = calls.Call;
const Status = calls.Status;

/// A failed check ends the process; nothing is printed, which keeps std's tables of debug symbols out of the library.
pub const panic = std.debug.FullPanic(stop);

fn stop(_: []const u8, _: ?usize) noreturn {
    @branchHint(.cold);
    @trap();
}

const IDENTITY = "kafkasniff-kernel abi=1 sources=" ++ build.sources ++ " zig=" ++ @import("builtin").zig_version_string;

/// What was compiled, by what.
pub export fn kafkasniff_identity() [*:0]const u8 {
    return IDENTITY;
}

/// 1 where these bytes are a program: any other must not be used.
pub export fn kafkasniff_check(program: [*]const u8, size: u64) i32 {
    return @intFromBool(programs.check(program[0..size]));
}

/// The body `data[start:end]` as JSON.
pub export fn kafkasniff_body(call: *Call, program: [*]const u8, data: [*]const u8, start: u64, end: u64) Status {
    if (start > end) return .misuse;
    reset(call);
    var out = output.Output{ .bytes = call.output[0..call.output_size] };
    var walk = walking.Walk.init(call, programs.Program.at(program), data[0..end], start, &out);
    walk.run() catch |reason| return status(reason);
    if (walk.account.wanting) return .compressed;
    if (walk.account.used != call.batches_given) return .odd;
    call.written = out.at;
    call.errors_written = walk.errors;
    return .done;
}

/// The `records` field `data[start:end]` as JSON.
pub export fn kafkasniff_records(call: *Call, data: [*]const u8, start: u64, end: u64) Status {
    if (start > end) return .misuse;
    reset(call);
    var out = output.Output{ .bytes = call.output[0..call.output_size] };
    var account = record_fields.Account{ .call = call, .left = call.max_records };
    record_fields.field(&out, data[start..end], start, &account) catch |reason| return status(reason);
    if (account.wanting) return .compressed;
    if (account.used != call.batches_given) return .odd;
    call.written = out.at;
    return .done;
}

/// Bodies one behind the other: those of items with a program, up to the first for which there is no room. Returns how
/// many items were looked at. Those with compressed records are for `kafkasniff_body`.
pub export fn kafkasniff_bodies(call: *Call, data: [*]const u8, size: u64, items: [*]calls.Item, count: u64) u64 {
    reset(call);
    const whole = call.output[0..call.output_size];
    const errors = call.errors;
    const errors_size = call.errors_size;
    defer {
        call.errors = errors;
        call.errors_size = errors_size;
    }
    var used: usize = 0;
    var errors_used: usize = 0;
    for (items[0..count], 0..) |*item, number| {
        item.status = .odd;
        item.output_end = used;
        item.errors_end = errors_used;
        item.records = 0;
        const program = item.program orelse continue;
        if (item.start > item.end or item.end > size) continue;
        call.errors = errors + errors_used;
        call.errors_size = errors_size - errors_used;
        call.records = 0;
        call.truncated = 0;
        call.batches_given = 0;
        call.batches_wanted = 0;
        var out = output.Output{ .bytes = whole[used..] };
        var walk = walking.Walk.init(call, programs.Program.at(program), data[0..item.end], item.start, &out);
        walk.run() catch |reason| {
            if (reason == error.NoRoom) {
                item.status = .no_room;
                return number;
            }
            continue;
        };
        if (walk.account.wanting) {
            item.status = .compressed;
            continue;
        }
        used += out.at;
        errors_used += walk.errors;
        item.output_end = used;
        item.errors_end = errors_used;
        item.records = @truncate(@min(call.records, 0xFFFF_FFFF));
        item.status = .done;
    }
    call.written = used;
    call.errors_written = errors_used;
    return count;
}

fn reset(call: *Call) void {
    call.written = 0;
    call.errors_written = 0;
    call.batches_wanted = 0;
    call.records = 0;
    call.truncated = 0;
}

fn status(reason: reading.Error) Status {
    return switch (reason) {
        error.Odd => .odd,
        error.NoRoom => .no_room,
    };
}

/// What the batches of `call` hold (`columns.Batch`).
pub export fn kafkasniff_columns_measure(call: *columns.Columns) void {
    columns.measure(call);
}

/// Their records as columns: of those that were measured as `done` and are so still.
pub export fn kafkasniff_columns_write(call: *columns.Columns) Status {
    return columns.write(call);
}
