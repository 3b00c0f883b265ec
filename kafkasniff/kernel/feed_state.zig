//! The state that `feed.zig` keeps of connections, and its bounds. `feed_found.zig` has the messages that it finds.
//!
//! `kafkasniff/native/feed.py` has the same structures.

const found = @import("feed_found.zig");
const std = @import("std");

const Message = found.Message;

pub const KEYS = found.KEYS;
pub const VERSIONS = found.VERSIONS;
pub const HEADER = found.HEADER;
pub const NONE = found.NONE;
pub const NO_TIME = found.NO_TIME;

/// TCP flags (RFC 9293, section 3.1).
pub const FIN = 0x01;
pub const SYN = 0x02;
pub const RST = 0x04;
pub const ACK = 0x10;

/// Larger frames are left to Python, which keeps their pieces without moving them.
pub const MAX_FRAME = 4 << 20;
/// Packets with data that a stream remembers (`tcp.stream.RECENT`).
pub const RECENT = 16;
/// Size of `Feed.marks`: one byte for each hash of endpoints.
pub const MARKS = 1 << 16;
/// The most requests without a response of one connection (`exchange.MAX_OUTSTANDING`).
pub const MAX_OUTSTANDING = 65_536;
/// The most open requests that expect no response (`exchange.MAX_SILENT`).
pub const MAX_SILENT = 64;
/// Initial room for a frame in pieces.
pub const FIRST_ROOM = 256;
/// A frame gets room for all its bytes once it has this part of them.
pub const WHOLE_RATIO = 8;
/// Bytes and segments of a stream held back after a hole, or early responses. With more, the connection is left to
/// Python.
pub const MAX_HELD_BYTES = 1 << 20;
pub const MAX_HELD_SEGMENTS = 256;
/// The memory of an entry besides its bytes: the table of entries doubles when it is full.
pub const HELD_MEMORY: u64 = 2 * @sizeOf(Held);
/// A response waits for its request during this many later frames of its connection (`early.EARLY_FRAMES`).
pub const EARLY_FRAMES = 4;
/// From `tcp/connection.py`: a segment further ahead does not belong to the stream; and when a hole becomes a gap.
pub const MAX_AHEAD = 64 << 20;
pub const GRACE_PACKETS = 32;
pub const GRACE_NS = 1_000_000_000;
pub const ONE_SIDED_PACKETS = 256;

pub const Status = enum(i32) {
    /// All rows were processed.
    done = 0,
    /// `row` is the first unprocessed row: there is no room for more messages, pieces of frames or waiting requests.
    no_messages = 1,
    no_arena = 2,
    no_waiting = 3,
    /// `asked` is the code of an API version that is not known yet.
    unknown = 4,
    /// There is no room for more held segments.
    no_held = 5,
    /// Python has to judge the first request of a connection: `asked_size` bytes of the buffer at `asked_at`.
    judge = 6,
};

pub const Recent = extern struct { seq: u32, wire: u32, ident: u32 };

/// The unfinished frame of a stream.
pub const Piece = extern struct {
    /// Position of its bytes in the arena, length prefix included, their number, and the room for them.
    at: u64,
    have: u32,
    room: u32,
    /// Bytes of the whole frame; 4 while its length prefix is not complete.
    need: u32,
    sized: u32,
    first_packet: i64,
    last_packet: i64,
    first_time: i64,
    last_time: i64,
};

/// The progress of a connection that began here.
pub const Begun = enum(u8) {
    /// It began in Python.
    no = 0,
    /// Its SYN was seen,
    syn = 1,
    /// then the SYN-ACK,
    answered = 2,
    /// then another packet of the client.
    open = 3,
    /// Python judged its first request to be one.
    judged = 4,
    _,
};

/// A segment after a hole, or a response that arrived before its request.
pub const Held = extern struct {
    /// Position of its bytes in the arena.
    at: u64,
    /// The packet that brought the segment, or completed the response, and its time.
    packet: i64,
    time: i64,
    /// Segments: the connection's `count` and the packet clock at its arrival.
    count: i64 = 0,
    clock: i64 = 0,
    /// Responses: as in `Message`.
    order: i64 = 0,
    first_packet: i64 = 0,
    last_packet: i64 = 0,
    first_time: i64 = 0,
    /// The sequence number of a segment, or the correlation id of a response.
    seq: u32,
    size: u32,
    next: u32,
    /// Responses: the value of `Dialogue.ticks` at which the wait ends.
    due: u32 = 0,
};

pub const Stream = extern struct {
    /// Sequence number of the next byte.
    next: u32,
    /// Acknowledgement number of the peer's last packet.
    ack: u32,
    /// Bytes delivered since the connection was handed over, and how many of them are in complete frames.
    bytes: u64,
    framed: u64,
    piece: Piece,
    /// Packets with data since then. The last ones are stored at this number modulo `RECENT`.
    packets: u64,
    recent: [RECENT]Recent,
    /// Bytes of the stream delivered before it was handed over, and bytes retransmitted since then.
    before: u64,
    repeated: u64,
    /// Segments after a hole in the order of their sequence numbers, without overlaps, and their bytes.
    held: u32,
    held_last: u32,
    held_count: u32,
    held_bytes: u32,
    /// The connection's `count` when the hole opened, was partly filled, or the peer last sent a packet.
    opened: i64,
    /// How far the peer acknowledged while a hole was open, as `bytes` counts; NO_TIME: not yet.
    acked: i64,
};

pub const Dialogue = extern struct {
    /// Ordinal of the next exchange.
    ordinal: i64,
    last_id: i32,
    last_answer: i32,
    has_last_id: u8,
    /// 2: something other than a greeting was answered, too.
    has_last_answer: u8,
    ids_vary: u8,
    ids_rise: u8,
    /// The largest number of requests outstanding at once.
    most: u32,
    /// Requests that wait for their response, oldest first.
    first: u32,
    last: u32,
    count: u32,
    /// Retransmitted segments since the last exchange ended (`Feed.every_end`).
    retransmits: u32,
    /// Responses that arrived while no request was waiting, oldest first, and their bytes.
    early: u32,
    early_last: u32,
    early_count: u32,
    early_bytes: u32,
    /// Frames since the first early response, which count towards its wait.
    ticks: u32,
    /// Requests that expect no response and have not ended, oldest first.
    silent: u32,
    silent_last: u32,
    silent_count: u32,
    /// The first entry of the list: entries before `silent` ended with the current segment.
    silent_ended: u32,
    spare: u32,
    /// Position of the last frame: order, time and packet.
    order: i64,
    time: i64,
    packet: i64,
};

/// Which bytes of a connection are missing. It decides whether ids alone tie a response to its request.
pub const Loss = enum(u8) {
    none = 0,
    some = 1,
    /// Responses may be among them.
    responses = 2,
    _,
};

pub const Connection = extern struct {
    /// Both endpoints: the senders of direction 0 and direction 1.
    high: [2]u64,
    low: [2]u64,
    port: [2]u16,
    /// 1 while the kernel has the connection.
    here: u8,
    /// Direction of the client's stream.
    client: u8,
    /// 1 while it is in `Feed.active`.
    active: u8,
    /// Bytes of it are missing.
    loss: Loss,
    begun: Begun,
    /// Retransmitted segments since it was handed over.
    retransmits: u32,
    /// Packet clock, number and time of the last packet; number of packets since the connection was handed over.
    clock: i64,
    last_packet: i64,
    last_time: i64,
    packets: u64,
    /// Packets while a hole was open.
    count: i64,
    dialogue: Dialogue,
    streams: [2]Stream,
};

/// A request without a response.
pub const Waiting = extern struct {
    ordinal: i64,
    first_time: i64,
    time: i64,
    correlation: i32,
    /// Index of the request among the messages; NONE: it is in an earlier batch.
    message: u32,
    next: u32,
    code: u16,
    spare: u16,
};

/// Facts about an API version: `Feed.kinds`.
pub const Kind = packed struct(u8) {
    /// Version of the request's header; 0: its messages are left to Python.
    header: u2,
    /// Position of `acks`: 0 none, 1 at the start of the body, 2 and 3 after a string or a compact string.
    acks: u2,
    /// The response's header has tagged fields.
    tags: bool,
    /// Clients send it as a greeting: its response does not end the handshake (`kafka/connection/opening.py`).
    greets: bool,
    rest: u1,
    /// Python was not asked for it yet.
    unknown: bool,
};

pub const Feed = extern struct {
    // Columns of the batch (`packets.PacketBatch`).
    rows: u64,
    order: [*]const i64,
    capture: [*]const i32,
    number: [*]const i64,
    time: [*]const i64,
    clock: [*]const i64,
    src_hi: [*]const u64,
    src_lo: [*]const u64,
    dst_hi: [*]const u64,
    dst_lo: [*]const u64,
    src_port: [*]const u16,
    dst_port: [*]const u16,
    seq: [*]const u32,
    ack: [*]const u32,
    flags: [*]const u8,
    offset: [*]const i64,
    length: [*]const i32,
    wire: [*]const i32,
    ident: [*]const u32,
    buffer: [*]const u8,
    buffer_size: u64,

    // Kept between calls.
    connections: [*]Connection,
    connections_size: u64,
    /// Indices of connections by the hash of their endpoints; NONE: free. The size is a power of two.
    table: [*]u32,
    table_size: u64,
    /// Random numbers for the hash of endpoints.
    secret: [4]u64,
    waiting: [*]Waiting,
    waiting_size: u64,
    held: [*]Held,
    held_size: u64,
    /// Connections that hold unfinished frames or segments, or had data since the last `carry`.
    active: [*]u32,
    active_used: u64,
    /// The first free entry of `waiting` and of `held`. Free entries are linked.
    free: u32,
    free_held: u32,
    max_frame: u32,
    /// 1: the end of each exchange is reported, with the retransmissions before it.
    every_end: u32,
    /// Idle time in nanoseconds of the packet clock after which a connection is over.
    idle: i64,
    kinds: [*]const u8,

    // Connections that begin here.
    /// Rows with the SYN of endpoints that have no connection in Python, ascending, and how many of them were
    /// processed.
    begins: [*]const u32,
    begins_size: u64,
    begins_used: u64,
    /// The same number of indices of free connections, and the rows whose connections took them.
    places: [*]const u32,
    places_rows: [*]u32,
    places_used: u64,
    /// `MARKS` bytes, by the hash of the endpoints of skipped rows: Python's connections may begin with such rows.
    marks: [*]u8,
    /// The row of the first request that was judged last, and whether it is a request.
    judged_row: u64,
    judged: u32,
    asked_size: u32,
    asked_at: u64,
    asked_connection: u64,

    // Results.
    row: u64,
    arena: [*]u8,
    arena_size: u64,
    arena_used: u64,
    messages: [*]Message,
    messages_size: u64,
    messages_used: u64,
    /// Rows that are left to Python.
    left: [*]u32,
    left_used: u64,
    /// Connections that were handed back.
    back: [*]u32,
    back_used: u64,
    /// Bytes delivered, and bytes of completed frames.
    bytes: u64,
    framed: u64,
    /// Retransmitted bytes; bytes of unfinished frames and of held segments at the end.
    repeated: u64,
    kept: u64,
    asked: u32,
    spare: u32,
};

pub const Stop = error{ Odd, NoMessages, NoArena, NoWaiting, NoHeld, Unknown, Judge };

pub inline fn numberOf(feed: *const Feed, row: u64) i64 {
    return (@as(i64, feed.capture[row]) << 40) | feed.number[row];
}

/// Records the packet as the connection's last one.
pub inline fn pass(feed: *const Feed, connection: *Connection, row: u64) void {
    connection.clock = feed.clock[row];
    connection.last_packet = numberOf(feed, row);
    connection.last_time = feed.time[row];
    connection.packets += 1;
}

/// Frees an entry and returns the next one.
pub inline fn release(feed: *Feed, entry: u32) u32 {
    const next = feed.waiting[entry].next;
    feed.waiting[entry].next = feed.free;
    feed.free = entry;
    return next;
}

/// Frees an entry of held data and returns the next one.
pub inline fn releaseHeld(feed: *Feed, entry: u32) u32 {
    const next = feed.held[entry].next;
    feed.held[entry].next = feed.free_held;
    feed.free_held = entry;
    return next;
}

pub inline fn frameSize(feed: *const Feed, prefix: *const [4]u8) Stop!u32 {
    const size = std.mem.readInt(u32, prefix, .big);
    if (size > feed.max_frame or size > MAX_FRAME) return error.Odd;
    return size;
}

pub inline fn isSource(feed: *const Feed, connection: *const Connection, side: usize, row: u64) bool {
    return connection.low[side] == feed.src_lo[row] and connection.port[side] == feed.src_port[row] and
        connection.high[side] == feed.src_hi[row] and connection.low[1 - side] == feed.dst_lo[row] and
        connection.port[1 - side] == feed.dst_port[row] and connection.high[1 - side] == feed.dst_hi[row];
}
