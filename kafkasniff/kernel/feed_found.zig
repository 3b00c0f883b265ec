//! The messages that `feed.zig` finds, as the writers of lines and columns read them.
//!
//! `kafkasniff/native/feed.py` has the same structures.

const Error = @import("reader.zig").Error;
const std = @import("std");

/// No index.
pub const NONE: u32 = 0xFFFF_FFFF;

pub const NO_TIME: i64 = std.math.minInt(i64);

/// API keys and versions below these bounds are looked up in `Feed.kinds`.
pub const KEYS = 128;
pub const VERSIONS = 32;
/// Bytes of a request's header up to its client id. The last two are the length of the client id.
pub const HEADER = 10;

pub const Flags = packed struct(u8) {
    request: bool = false,
    /// `start` is in the arena, not in the buffer.
    arena: bool = false,
    /// The header of a response has tagged fields.
    tags: bool = false,
    /// The request expects no response.
    silent: bool = false,
    /// Not a message: the exchange of a request that expects no response has ended.
    ended: bool = false,
    rest: u3 = 0,
};

pub const Message = extern struct {
    /// Order of the packet that completed it.
    order: i64,
    start: u64,
    first_packet: i64,
    last_packet: i64,
    /// The packet that completed it.
    packet: i64,
    /// The times of the packets with its first byte and its last.
    first_time: i64,
    time: i64,
    /// Nanoseconds after the request; in a request that waits, its place among the outstanding ones.
    latency: i64,
    duration: i64,
    ordinal: i64,
    connection: u32,
    size: u32,
    /// Index of the request's response, or of the response's request; NONE: it is not among these messages.
    pair: u32,
    correlation: i32,
    /// Offset of the body from `start`.
    body: u32,
    /// API key times `VERSIONS` plus version.
    code: u16,
    /// Length of the client id at `start + 10`; -1: null.
    client_id: i16,
    /// Number of messages before it in its packet.
    step: u32,
    flags: Flags,
    /// A mark of the caller.
    mark: u8 = 0,
    /// Responses: retransmitted segments since the previous exchange ended.
    retransmits: u16 = 0,
    /// The position of its length prefix in its stream; -1: it came late.
    position: i64,
    /// Number of its exchange, which the caller assigns; 0: none yet.
    number: i64 = 0,
    /// Responses: how long the request waited for others, and how long a quota delayed one of both (`stream_turns.zig`).
    behind: i64 = 0,
    muted: i64 = 0,
};

/// The messages of a batch, and the memory that holds their bytes.
pub const Messages = extern struct {
    rows: [*]const Message,
    size: u64,
    buffer: [*]const u8,
    buffer_size: u64,
    arena: [*]const u8,
    arena_size: u64,

    /// The bytes of a message.
    pub inline fn bytes(self: *const Messages, message: *const Message) Error![]const u8 {
        const source = if (message.flags.arena) self.arena[0..self.arena_size] else self.buffer[0..self.buffer_size];
        if (message.start > source.len or message.size > source.len - message.start) return error.Odd;
        return source[message.start..][0..message.size];
    }

    /// The client id of a request.
    pub inline fn clientId(self: *const Messages, request: *const Message) Error!?[]const u8 {
        if (request.client_id < 0) return null;
        const data = try self.bytes(request);
        const size: usize = @intCast(request.client_id);
        if (data.len < HEADER + size) return error.Odd;
        return data[HEADER..][0..size];
    }
};
