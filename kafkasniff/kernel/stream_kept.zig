//! Requests that are answered in a later call than their own: their rows and bytes, from the caller.
//!
//! The caller decides what is kept: the header, if only the response has to be shown, or all of it.

const Connection = @import("stream_connection.zig").Connection;
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const found_messages = @import("feed_found.zig");
const Pending = @import("stream_ledger.zig").Pending;
const std = @import("std");

const Message = found_messages.Message;

/// Keeps these requests, regular messages of the last call, as far as they are still outstanding. `whole`: with their
/// bodies.
pub fn keep(e: *Engine, rows: []const Message, buffer: [*]const u8, arena: [*]const u8, whole: bool) void {
    for (rows) |*row| {
        if (row.connection >= e.list.items.len) continue;
        const c = e.list.items[row.connection] orelse continue;
        const talk = c.kafka.talk orelse continue;
        const pending = talk.dialogue.ledger.find(row.ordinal, row.latency) orelse continue;
        if (pending.kept != null) continue;
        const size = if (whole) row.size else row.body;
        const source = (if (row.flags.arena) arena else buffer)[row.start..][0..@min(size, row.size)];
        const bytes = e.gpa.alloc(u8, @sizeOf(Message) + source.len) catch exhausted();
        @memcpy(bytes[0..@sizeOf(Message)], std.mem.asBytes(row));
        @memcpy(bytes[@sizeOf(Message)..], source);
        pending.kept = bytes;
        e.kept_bytes += bytes.len;
    }
}

/// The request leaves: it is returned with the results of this call, if it was kept. Returns its index there.
pub fn giveBack(e: *Engine, c: *const Connection, pending: *const Pending) ?usize {
    const bytes = pending.kept orelse return null;
    e.kept_bytes -= bytes.len;
    e.retire(bytes);
    var row: Message = undefined;
    @memcpy(std.mem.asBytes(&row), bytes[0..@sizeOf(Message)]);
    const source = bytes[@sizeOf(Message)..];
    row.connection = c.place;
    row.start = @intFromPtr(source.ptr);
    row.flags.arena = true;
    row.pair = found_messages.NONE;
    // Bytes in the arena; the size of the message stays.
    row.latency = @intCast(source.len);
    e.asked.append(e.gpa, row) catch exhausted();
    e.arena_size += source.len;
    return e.asked.items.len - 1;
}

/// The request is forgotten.
pub fn drop(e: *Engine, pending: *const Pending) void {
    const bytes = pending.kept orelse return;
    e.kept_bytes -= bytes.len;
    e.gpa.free(bytes);
}
