//! Turns frames into messages and pairs responses with requests.
//!
//! `kafkasniff/kafka/connection/dialogue.py` and `exchange.py` are the specification.

const state = @import("feed_state.zig");
const std = @import("std");

const Connection = state.Connection;
const Dialogue = state.Dialogue;
const Feed = state.Feed;
const Kind = state.Kind;
const Message = @import("feed_found.zig").Message;
const Stop = state.Stop;
const EARLY_FRAMES = state.EARLY_FRAMES;
const HEADER = state.HEADER;
const KEYS = state.KEYS;
const MAX_HELD_BYTES = state.MAX_HELD_BYTES;
const MAX_HELD_SEGMENTS = state.MAX_HELD_SEGMENTS;
const MAX_OUTSTANDING = state.MAX_OUTSTANDING;
const MAX_SILENT = state.MAX_SILENT;
const NONE = state.NONE;
const VERSIONS = state.VERSIONS;

/// A complete frame.
const Frame = struct {
    start: u64,
    size: u32,
    bytes: []const u8,
    arena: bool,
    first_packet: i64,
    last_packet: i64,
    first_time: i64,
};

pub fn message(
    feed: *Feed,
    connection: *Connection,
    index: u32,
    direction: usize,
    row: u64,
    number: i64,
    step: *u32,
    frame: Frame,
) Stop!void {
    const dialogue = &connection.dialogue;
    var found = Message{
        .order = feed.order[row],
        .start = frame.start,
        .first_packet = frame.first_packet,
        .last_packet = frame.last_packet,
        .packet = number,
        .first_time = frame.first_time,
        .time = feed.time[row],
        .latency = 0,
        .duration = 0,
        .ordinal = 0,
        .connection = index,
        .size = frame.size,
        .pair = NONE,
        .correlation = 0,
        .body = 0,
        .code = 0,
        .client_id = -1,
        .step = 0,
        .flags = .{ .arena = frame.arena },
    };
    if (direction == connection.client) {
        try request(feed, dialogue, &found, frame);
        try put(feed, step, found);
        if (dialogue.silent_count > MAX_SILENT) try endSilent(feed, dialogue, step, found);
    } else if (dialogue.first == NONE) {
        try keepEarly(feed, dialogue, &found, frame);
    } else {
        const waiting = &feed.waiting[dialogue.first];
        while (dialogue.silent != NONE and feed.waiting[dialogue.silent].ordinal < waiting.ordinal)
            try endSilent(feed, dialogue, step, found);
        try response(feed, connection, &found, frame);
        if (waiting.message != NONE) feed.messages[waiting.message].pair = @intCast(feed.messages_used);
        try put(feed, step, found);
    }
    if (dialogue.early != NONE and connection.streams[connection.client].held == NONE) {
        dialogue.ticks += 1;
        if (feed.held[dialogue.early].due <= dialogue.ticks) return error.Odd;
    }
    dialogue.order = @max(dialogue.order, found.order);
    dialogue.time = found.time;
    dialogue.packet = number;
}

/// Adds a message to the output.
inline fn put(feed: *Feed, step: *u32, found: Message) Stop!void {
    if (feed.messages_used == feed.messages_size) return error.NoMessages;
    feed.messages[feed.messages_used] = found;
    feed.messages[feed.messages_used].step = step.*;
    feed.messages_used += 1;
    step.* += 1;
}

/// The message `by` ends the exchange of the oldest request that expects no response.
fn endSilent(feed: *Feed, dialogue: *Dialogue, step: *u32, by: Message) Stop!void {
    const waiting = &feed.waiting[dialogue.silent];
    var ended = by;
    ended.ordinal = waiting.ordinal;
    ended.correlation = waiting.correlation;
    ended.code = waiting.code;
    ended.size = 0;
    ended.pair = NONE;
    ended.flags = .{ .ended = true };
    ended.retransmits = @intCast(@min(dialogue.retransmits, std.math.maxInt(u16)));
    try put(feed, step, ended);
    dialogue.retransmits = 0;
    dialogue.silent = waiting.next;
    dialogue.silent_count -= 1;
}

/// Keeps a response that arrived while no request was waiting. Its request may be missing in a hole that is not seen
/// yet.
fn keepEarly(feed: *Feed, dialogue: *Dialogue, found: *const Message, frame: Frame) Stop!void {
    const size = frame.size;
    if (size < 4) return error.Odd;
    const id = std.mem.readInt(u32, frame.bytes[0..4], .big);
    // Brokers may answer requests that expect no response.
    var silent = dialogue.silent;
    while (silent != NONE) : (silent = feed.waiting[silent].next) {
        if (feed.waiting[silent].correlation == @as(i32, @bitCast(id))) return error.Odd;
    }
    if (dialogue.early_count == MAX_HELD_SEGMENTS or dialogue.early_bytes + size > MAX_HELD_BYTES) return error.Odd;
    const entry = feed.free_held;
    if (entry == NONE) return error.NoHeld;
    if (size > feed.arena_size - feed.arena_used) return error.NoArena;
    feed.free_held = feed.held[entry].next;
    @memcpy(feed.arena[feed.arena_used..][0..size], frame.bytes);
    if (dialogue.early == NONE) dialogue.ticks = 0;
    feed.held[entry] = .{
        .at = feed.arena_used,
        .packet = found.packet,
        .time = found.time,
        .order = found.order,
        .first_packet = found.first_packet,
        .last_packet = found.last_packet,
        .first_time = found.first_time,
        .seq = id,
        .size = size,
        .next = NONE,
        .due = dialogue.ticks + EARLY_FRAMES + 1,
    };
    feed.arena_used += size;
    if (dialogue.early_last == NONE) dialogue.early = entry else feed.held[dialogue.early_last].next = entry;
    dialogue.early_last = entry;
    dialogue.early_count += 1;
    dialogue.early_bytes += size;
}

fn request(feed: *Feed, dialogue: *Dialogue, found: *Message, frame: Frame) Stop!void {
    const bytes = frame.bytes;
    if (bytes.len < HEADER) return error.Odd;
    const key = std.mem.readInt(u16, bytes[0..2], .big);
    const version = std.mem.readInt(u16, bytes[2..4], .big);
    if (key >= KEYS or version >= VERSIONS) return error.Odd;
    const code = key * VERSIONS + version;
    const kind: Kind = @bitCast(feed.kinds[code]);
    if (kind.unknown) {
        feed.asked = code;
        return error.Unknown;
    }
    if (kind.header == 0) return error.Odd;
    const length = std.mem.readInt(i16, bytes[8..10], .big);
    if (length < -1) return error.Odd;
    var body: usize = HEADER + @as(usize, @intCast(@max(length, 0)));
    if (kind.header == 2) {
        if (body >= bytes.len or bytes[body] != 0) return error.Odd;
        body += 1;
    }
    if (body > bytes.len) return error.Odd;
    const is_silent = kind.acks != 0 and try acksOf(bytes[body..], kind.acks) == 0;
    if (dialogue.count >= MAX_OUTSTANDING) return error.Odd;
    const id = std.mem.readInt(i32, bytes[4..8], .big);
    var early = dialogue.early;
    while (early != NONE) : (early = feed.held[early].next) {
        if (feed.held[early].seq == @as(u32, @bitCast(id))) return error.Odd;
    }
    const entry = feed.free;
    if (entry == NONE) return error.NoWaiting;
    feed.free = feed.waiting[entry].next;
    feed.waiting[entry] = .{
        .ordinal = dialogue.ordinal,
        .first_time = frame.first_time,
        .time = found.time,
        .correlation = id,
        .message = if (is_silent) NONE else @intCast(feed.messages_used),
        .next = NONE,
        .code = code,
        .spare = 0,
    };
    if (is_silent) {
        if (dialogue.silent_last == NONE) dialogue.silent_ended = entry else feed.waiting[dialogue.silent_last].next = entry;
        if (dialogue.silent == NONE) dialogue.silent = entry;
        dialogue.silent_last = entry;
        dialogue.silent_count += 1;
    } else {
        if (dialogue.last == NONE) dialogue.first = entry else feed.waiting[dialogue.last].next = entry;
        dialogue.last = entry;
        dialogue.count += 1;
    }
    found.flags.silent = is_silent;
    // A client that sends without waiting for an answer has finished its handshake, as in `kafka/connection/dialogue.py`.
    if (is_silent and dialogue.has_last_answer != 0) dialogue.has_last_answer = 2;
    found.flags.request = true;
    found.ordinal = dialogue.ordinal;
    found.correlation = id;
    found.code = code;
    found.client_id = length;
    found.body = @intCast(body);
    dialogue.ordinal += 1;
    if (dialogue.has_last_id != 0) {
        if (id != dialogue.last_id) dialogue.ids_vary = 1;
        if (id <= dialogue.last_id) dialogue.ids_rise = 0;
    }
    dialogue.last_id = id;
    dialogue.has_last_id = 1;
}

/// `acks` of the body of a Produce request.
fn acksOf(body: []const u8, acks: u2) Stop!i16 {
    var at: usize = 0;
    if (acks == 2) {
        if (body.len < 2) return error.Odd;
        const length = std.mem.readInt(i16, body[0..2], .big);
        if (length < -1) return error.Odd;
        at = 2 + @as(usize, @intCast(@max(length, 0)));
    } else if (acks == 3) {
        // A message with a transactional id longer than 126 bytes is left to Python.
        if (body.len < 1 or body[0] >= 0x80) return error.Odd;
        at = @max(body[0], 1);
    }
    if (at + 2 > body.len) return error.Odd;
    return std.mem.readInt(i16, body[at..][0..2], .big);
}

fn response(feed: *Feed, connection: *Connection, found: *Message, frame: Frame) Stop!void {
    const dialogue = &connection.dialogue;
    const bytes = frame.bytes;
    // It answers a request, so early responses can wait no longer.
    if (bytes.len < 4 or dialogue.early != NONE) return error.Odd;
    const id = std.mem.readInt(i32, bytes[0..4], .big);
    const waiting = &feed.waiting[dialogue.first];
    if (waiting.correlation != id) return error.Odd;
    const latency = frame.first_time -% waiting.time;
    if (latency < 0) return error.Odd;
    const is_behind = connection.streams[connection.client].held != NONE;
    // The request that it answers may be missing or held back and have the same id. Python decides by the body.
    if (connection.loss != .none and (dialogue.ids_rise == 0 or (connection.loss == .responses and is_behind)))
        return error.Odd;
    const kind: Kind = @bitCast(feed.kinds[waiting.code]);
    found.latency = latency;
    found.duration = found.time -% waiting.first_time;
    found.ordinal = waiting.ordinal;
    found.correlation = id;
    found.code = waiting.code;
    found.pair = waiting.message;
    found.body = if (kind.tags) 5 else 4;
    found.flags.tags = kind.tags and (bytes.len < 5 or bytes[4] != 0);
    // After a hole, more requests may be outstanding than the client sent ahead.
    if (connection.streams[1 - connection.client].held == NONE) dialogue.most = @max(dialogue.most, dialogue.count);
    if (feed.every_end != 0) {
        found.retransmits = @intCast(dialogue.retransmits);
        dialogue.retransmits = 0;
    }
    dialogue.first = waiting.next;
    if (dialogue.first == NONE) dialogue.last = NONE;
    dialogue.count -= 1;
    dialogue.last_answer = id;
    dialogue.has_last_answer = if (kind.greets) @max(dialogue.has_last_answer, 1) else 2;
}
