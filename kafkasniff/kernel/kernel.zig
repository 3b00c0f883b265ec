//! The exported functions. Except for stream engines (`streams.zig`), the kernel has no state: all memory belongs to the
//! caller.

const build = @import("build_facts");
pub const calls = @import("call.zig");
pub const chosen = @import("chosen.zig");
pub const columns = @import("columns.zig");
pub const exchanges = @import("exchanges.zig");
pub const feed_found = @import("feed_found.zig");
pub const headers = @import("headers.zig");
const json = @import("json.zig");
pub const lines = @import("lines.zig");
pub const names = @import("names.zig");
const packing = @import("pack.zig");
pub const pcap = @import("pcap.zig");
const payloads = @import("payload.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const record_fields = @import("records.zig");
pub const redact = @import("redact.zig");
const std = @import("std");
pub const streams = @import("streams.zig");
pub const summaries = @import("summary.zig");
const summary_tables = @import("summary_table.zig");
pub const text_columns = @import("text_columns.zig");
pub const text_lines = @import("text_lines.zig");
pub const tree = @import("tree.zig");
const walking = @import("walk.zig");

pub const crc32 = @import("checksum.zig").crc32;
pub const crc32c = @import("checksum.zig").crc32c;

const Account = @import("record_account.zig").Account;
const Call = calls.Call;
const Status = calls.Status;

comptime {
    // Its functions are exported there.
    _ = streams;
}

/// A failed check ends the process. The caller says so: std's report would need its tables of debug symbols.
pub const panic = std.debug.FullPanic(stop);

var report: ?*const fn ([*]const u8, u64) callconv(.c) void = null;

/// Sets what is called with the message of a failed check.
pub export fn kafkasniff_on_panic(called: @TypeOf(report)) void {
    report = called;
}

fn stop(message: []const u8, _: ?usize) noreturn {
    @branchHint(.cold);
    const called = report;
    // Once: what it calls may fail, too.
    report = null;
    if (called) |say| say(message.ptr, message.len);
    @trap();
}

const IDENTITY = "kafkasniff-kernel abi=26 sources=" ++ build.sources ++ " zig=" ++ @import("builtin").zig_version_string;

/// Identifies the source and the compiler of this build.
pub export fn kafkasniff_identity() [*:0]const u8 {
    return IDENTITY;
}

/// 1 if these bytes are a valid program; others must not be used.
pub export fn kafkasniff_check(program: [*]const u8, size: u64) i32 {
    return @intFromBool(programs.check(program[0..size]));
}

/// Finds the records of a pcap file.
pub export fn kafkasniff_pcap_records(records: *pcap.Records) void {
    records.read();
}

/// Finds the packet blocks of a pcapng file.
pub export fn kafkasniff_pcapng_blocks(blocks: *pcap.Blocks) void {
    blocks.read();
}

/// Decodes headers of packets to columns.
pub export fn kafkasniff_headers(packets: *headers.Packets) void {
    packets.read();
}

/// Finds the packets in a block of a ring (`headers.ringPlaces`).
pub export fn kafkasniff_ring(block: [*]const u8, size: u64, first: u32, header: u32, places: [*]i64, count: u64) u64 {
    return headers.ringPlaces(block[0..size], first, header, places[0..count]);
}

/// Renders the body `data[start:end]`. The caller judges any data after its end (`call.after`).
pub export fn kafkasniff_body(call: *Call, program: [*]const u8, data: [*]const u8, start: u64, end: u64) Status {
    if (start > end) return .misuse;
    reset(call);
    var memory: payloads.Hiding = undefined;
    const hiding = if (memory.begin(call)) &memory else null;
    defer if (hiding) |used| used.forget();
    const ended = written(call, programs.Program.at(program), data[0..end], start, hiding) catch |reason|
        return status(reason);
    if (ended.wanting) return .compressed;
    if (ended.used != call.batches_given) return .odd;
    call.written = ended.written;
    call.notes_written = ended.notes;
    call.after = ended.after;
    return .done;
}

/// Packs the body that `call` names as MessagePack; for callers to whom each argument and result has a cost. Returns
/// twice the number of bytes written, plus 1 unless the other results say only that the body ends with the data. If it
/// is not done, returns a negative status.
pub export fn kafkasniff_pack(call: *Call, data: [*]const u8) i64 {
    const done = kafkasniff_body(call, call.program orelse return -@as(i64, @intFromEnum(Status.misuse)), data, call.start, call.end);
    if (done != .done) return -@as(i64, @intFromEnum(done));
    const more = call.notes_written | call.records | call.truncated | call.looked_at | (call.after ^ call.end);
    return @as(i64, @intCast(call.written << 1)) | @intFromBool(more != 0);
}

const Ended = struct {
    /// Bytes of output, and of notes.
    written: usize,
    notes: usize,
    after: usize,
    wanting: bool,
    used: u64,
    /// Python has to build some of the output (`pack.Extension`).
    extensions: bool,
};

/// Writes a body in the requested form.
fn written(
    call: *Call,
    program: programs.Program,
    data: []const u8,
    start: usize,
    hiding: ?*payloads.Hiding,
) reading.Error!Ended {
    return switch (call.wants.output) {
        .json => body(json.Json, call, program, data, start, jsonOutput(call, hiding), hiding),
        .pack => body(packing.Pack, call, program, data, start, packOutput(call), hiding),
    };
}

fn body(
    comptime Out: type,
    call: *Call,
    program: programs.Program,
    data: []const u8,
    start: usize,
    into: Out,
    hiding: ?*payloads.Hiding,
) reading.Error!Ended {
    var out = into;
    var walk = walking.Walk(Out).init(call, program, data, start, &out, hiding);
    const after = try walk.run();
    return .{
        .written = out.at,
        .notes = walk.notes.used,
        .after = after,
        .wanting = walk.account.wanting,
        .used = walk.account.used,
        .extensions = !Out.is_final and out.extensions,
    };
}

fn jsonOutput(call: *const Call, hiding: ?*payloads.Hiding) json.Json {
    return .{ .bytes = call.output[0..call.output_size], .form = call.wants.form, .hiding = hiding };
}

fn packOutput(call: *const Call) packing.Pack {
    return .{ .bytes = call.output[0..call.output_size] };
}

/// Renders the `records` field `data[start:end]` as JSON.
pub export fn kafkasniff_records(call: *Call, data: [*]const u8, start: u64, end: u64) Status {
    if (start > end) return .misuse;
    reset(call);
    var memory: payloads.Hiding = undefined;
    const hiding = if (memory.begin(call)) &memory else null;
    defer if (hiding) |used| used.forget();
    var out = jsonOutput(call, hiding);
    // The field does not name its topic.
    var account = Account{
        .call = call,
        .left = call.max_records,
        .hiding = out.hiding,
        .may_be_internal = true,
    };
    record_fields.field(&out, data[start..end], start, &account) catch |reason| return status(reason);
    if (account.wanting) return .compressed;
    if (account.used != call.batches_given) return .odd;
    call.written = out.at;
    return .done;
}

/// Packs the decompressed records of a batch of magic 2, which fill `data[start:end]`, as a MessagePack array.
pub export fn kafkasniff_record_list(
    call: *Call,
    data: [*]const u8,
    start: u64,
    end: u64,
    base: *const calls.Base,
) Status {
    if (start > end) return .misuse;
    reset(call);
    var out = packOutput(call);
    var account = Account{ .call = call, .left = call.max_records };
    const list = out.openList() catch |reason| return status(reason);
    const count = record_fields.records(&out, data[start..end], base.*, false, &account) catch |reason| return status(reason);
    out.closeList(list, @intCast(count)) catch |reason| return status(reason);
    call.written = out.at;
    return .done;
}

/// Renders the bodies of items with a program, one after the other, up to the first that does not fit. Returns the
/// number of items processed. Bodies with compressed records are left to `kafkasniff_body`. As MessagePack, all bodies
/// form one array, with null for those not done.
pub export fn kafkasniff_bodies(call: *Call, data: [*]const u8, size: u64, items: [*]calls.Item, count: u64) u64 {
    reset(call);
    const output = call.output;
    const output_size = call.output_size;
    const notes = call.notes;
    const notes_size = call.notes_size;
    defer {
        call.output = output;
        call.output_size = output_size;
        call.notes = notes;
        call.notes_size = notes_size;
    }
    var memory: payloads.Hiding = undefined;
    const hiding = if (memory.begin(call)) &memory else null;
    defer if (hiding) |used| used.forget();
    const packs = call.wants.output == .pack;
    if (packs and output_size < packing.HEAD_OF_ARRAY) return 0;
    var used: usize = if (packs) packing.HEAD_OF_ARRAY else 0;
    var notes_used: usize = 0;
    var looked: usize = 0;
    for (items[0..count]) |*item| {
        const before = used;
        if (packs) {
            if (used == output_size) {
                item.status = .no_room;
                break;
            }
            output[used] = packing.NULL;
            used += 1;
        }
        looked += 1;
        item.status = .odd;
        item.output_end = used;
        item.notes_end = notes_used;
        item.records = 0;
        const program = item.program orelse continue;
        if (item.start > item.end or item.end > size) continue;
        call.notes = notes + notes_used;
        call.notes_size = notes_size - notes_used;
        call.records = 0;
        call.truncated = 0;
        call.looked_at = 0;
        call.batches_given = 0;
        call.batches_wanted = 0;
        call.output = output + before;
        call.output_size = output_size - before;
        const found = programs.Program.at(program);
        const ended = written(call, found, data[0..item.end], item.start, hiding) catch |reason| {
            if (reason == error.NoRoom) {
                item.status = .no_room;
                used = before;
                looked -= 1;
                break;
            }
            if (packs) output[before] = packing.NULL;
            continue;
        };
        if (ended.wanting) {
            if (packs) output[before] = packing.NULL;
            item.status = .compressed;
            continue;
        }
        used = before + ended.written;
        notes_used += ended.notes;
        item.output_end = used;
        item.notes_end = notes_used;
        item.after = ended.after;
        item.records = @truncate(@min(call.records, 0xFFFF_FFFF));
        item.truncated = @intFromBool(call.truncated > 0);
        item.looked_at = @truncate(call.looked_at);
        item.extensions = @intFromBool(ended.extensions);
        item.status = .done;
    }
    if (packs) packing.headOfArray(output[0..packing.HEAD_OF_ARRAY], @truncate(looked));
    call.written = used;
    call.notes_written = notes_used;
    return looked;
}

fn reset(call: *Call) void {
    call.written = 0;
    call.notes_written = 0;
    call.batches_wanted = 0;
    call.records = 0;
    call.truncated = 0;
    call.after = 0;
    call.looked_at = 0;
}

fn status(reason: reading.Error) Status {
    return switch (reason) {
        error.Odd => .odd,
        error.NoRoom => .no_room,
    };
}

/// Measures the batches of `call` (`columns.Batch`).
pub export fn kafkasniff_columns_measure(call: *columns.Columns) void {
    columns.measure(call);
}

/// Writes the records of the batches that were measured as `done` and are still valid.
pub export fn kafkasniff_columns_write(call: *columns.Columns) Status {
    return columns.write(call);
}

/// Renders messages of a batch as JSON lines, from `next` on; see `lines.zig`.
pub export fn kafkasniff_lines(call: *lines.Lines) lines.Outcome {
    return lines.run(call);
}

/// Copies the fields of the body `data[start..size]` that have a role in the program; see `chosen.zig`. Returns the size
/// of the copy; negative if the body is invalid or the copy is too large.
pub export fn kafkasniff_chosen(
    program: [*]const u8,
    data: [*]const u8,
    size: u64,
    start: u64,
    output: [*]u8,
    output_size: u64,
) i64 {
    if (start > size) return -1;
    const used = chosen.copy(programs.Program.at(program), data[0..size], start, output[0..output_size]) catch return -1;
    return @intCast(used);
}

/// Copies messages without secrets and payload; see `redact.zig`.
pub export fn kafkasniff_blank(call: *redact.Blanking) void {
    call.run();
}

/// 1 if a batch of `wire` bytes whose decompressed records these are may be shown.
pub export fn kafkasniff_may_show(call: *redact.Blanking, records: [*]const u8, size: u64, count: u64, wire: u64) i32 {
    return @intFromBool(call.mayShow(records[0..size], count, wire));
}

/// Writes bytes of streams into packets, and their checksums; see `redact.zig`.
pub export fn kafkasniff_patch(call: *const redact.Patching) void {
    call.run();
}

/// Writes whole exchanges of a batch as columns, from `next` on; see `exchanges.zig`.
pub export fn kafkasniff_exchanges(call: *exchanges.Exchanges) Status {
    return exchanges.run(call);
}

/// Renders messages of a batch as lines of text; see `text_lines.zig`.
pub export fn kafkasniff_text_lines(call: *text_lines.TextLines) text_lines.Outcome {
    return text_lines.run(call);
}

/// Pads the columns of such lines; see `text_columns.zig`.
pub export fn kafkasniff_text_columns(call: *text_columns.Columns) void {
    text_columns.run(call);
}

/// 1 if these bytes are a valid table of a summary; others must not be used.
pub export fn kafkasniff_check_summary(table: [*]const u8, size: u64) i32 {
    return @intFromBool(summary_tables.check(table[0..size]));
}
