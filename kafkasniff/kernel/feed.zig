//! Streams: packets of connections that are in step, in capture order, become messages with their requests paired.
//!
//! A connection is handed over by Python once its verdict and its streams' frames are known, or begins here with its SYN,
//! and Python judges its first request. It goes back with its state as of a packet boundary when anything else happens
//! than requests and the responses to them in turn. Segments may come
//! twice, and out of order: those behind a hole are held back until it is filled. Overlaps and gaps are Python's.
//! `kafkasniff/tcp` and `kafkasniff/kafka/{framing,dialogue,exchange}.py` are the specification.
//! `kafkasniff/native/feed.py` has the same structures.

const std = @import("std");

/// No index.
pub const NONE: u32 = 0xFFFF_FFFF;

pub const NO_TIME: i64 = std.math.minInt(i64);

/// Flags of TCP (RFC 9293, section 3.1).
const FIN = 0x01;
const SYN = 0x02;
const RST = 0x04;
const ACK = 0x10;

/// API keys and versions below these are looked up in `Feed.kinds`.
pub const KEYS = 128;
pub const VERSIONS = 32;
/// Frames above this go the way of Python, which keeps their pieces without moving them.
pub const MAX_FRAME = 4 << 20;
/// Bytes of a request's header up to its client id, whose length is the last two.
const HEADER = 10;
/// Packets with data that a stream remembers (`tcp.stream.RECENT`).
pub const RECENT = 16;
/// Marks of endpoints in `Feed.marks`, one byte each.
pub const MARKS = 1 << 16;
/// Requests without a response of one connection (`exchange.MAX_OUTSTANDING`).
const MAX_OUTSTANDING = 65_536;
/// Requests that expect no response, and are still open to one (`exchange.MAX_SILENT`).
const MAX_SILENT = 64;
/// The first room for a frame in pieces.
const FIRST_ROOM = 256;
/// Bytes and segments of a stream that are held back behind a hole, or early responses; with more, it is Python's.
const MAX_HELD_BYTES = 1 << 20;
const MAX_HELD_SEGMENTS = 256;
/// What an entry counts for besides its bytes: their table doubles when it is full.
const HELD_MEMORY: u64 = 2 * @sizeOf(Held);
/// So many later frames of its connection a response waits for its request (`early.EARLY_FRAMES`).
const EARLY_FRAMES = 4;
/// `tcp/connection.py` has these: a segment further away is none of its stream, and when a hole is a gap.
const MAX_AHEAD = 64 << 20;
const GRACE_PACKETS = 32;
const GRACE_NS = 1_000_000_000;
const ONE_SIDED_PACKETS = 256;

pub const Status = enum(i32) {
    /// All rows were looked at.
    done = 0,
    /// `row` is the first that was not: there is no room for more messages, pieces of frames or waiting requests.
    no_messages = 1,
    no_arena = 2,
    no_waiting = 3,
    /// `asked` is the code of a version of an API that nothing is known of yet.
    unknown = 4,
    /// There is no room for more segments that are held back.
    no_held = 5,
    /// Python has to judge the first request of a connection: `asked_size` bytes of the buffer at `asked_at`.
    judge = 6,
};

pub const Recent = extern struct { seq: u32, wire: u32, ident: u32 };

/// The frame of a stream that is not whole yet.
pub const Piece = extern struct {
    /// Where its bytes are in the arena, length prefix included; how many there are, and for how many there is room.
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

/// How far a connection is that began here.
pub const Begun = enum(u8) {
    /// It began with Python.
    no = 0,
    /// Its SYN was there,
    syn = 1,
    /// the answer to it,
    answered = 2,
    /// and a packet of the client after that.
    open = 3,
    /// Its first request was judged to be one.
    judged = 4,
    _,
};

/// A segment behind a hole, or a response that came before its request.
pub const Held = extern struct {
    /// Where its bytes are in the arena.
    at: u64,
    /// The packet that brought the segment, or completed the response, and its time.
    packet: i64,
    time: i64,
    /// Of a segment: the connection's `count` and the packet clock when it came.
    count: i64 = 0,
    clock: i64 = 0,
    /// Of a response: as `Message`.
    order: i64 = 0,
    first_packet: i64 = 0,
    last_packet: i64 = 0,
    first_time: i64 = 0,
    /// The sequence number of a segment, the correlation id of a response.
    seq: u32,
    size: u32,
    next: u32,
    /// Of a response: it has waited long enough when `Dialogue.ticks` is this.
    due: u32 = 0,
};

pub const Stream = extern struct {
    /// Sequence number of the byte that comes next.
    next: u32,
    /// Acknowledgement number of the peer's last packet.
    ack: u32,
    /// Bytes that were delivered, and those of them that are whole frames, since the connection was handed over.
    bytes: u64,
    framed: u64,
    piece: Piece,
    /// Packets with data since then; the last ones are at this number modulo `RECENT`.
    packets: u64,
    recent: [RECENT]Recent,
    /// Bytes of the stream that were delivered before it was handed over; those that came twice since then.
    before: u64,
    repeated: u64,
    /// Segments behind a hole in the order of their numbers, which do not overlap, and their bytes.
    held: u32,
    held_last: u32,
    held_count: u32,
    held_bytes: u32,
    /// The connection's `count` when the hole opened, was filled in part, or a packet of the peer came since.
    opened: i64,
    /// How far the peer was seen to acknowledge while a hole was open, as `bytes` counts; NO_TIME: not yet.
    acked: i64,
};

pub const Dialogue = extern struct {
    /// Ordinal of the exchange that begins next.
    ordinal: i64,
    last_id: i32,
    last_answer: i32,
    has_last_id: u8,
    /// 2: something else than a greeting was answered, too.
    has_last_answer: u8,
    ids_vary: u8,
    ids_rise: u8,
    /// So many requests were outstanding at once.
    most: u32,
    /// Requests that wait for their response, oldest first.
    first: u32,
    last: u32,
    count: u32,
    /// Retransmitted segments since the last exchange ended (`Feed.every_end`).
    retransmits: u32,
    /// Responses that came before their requests, oldest first, and their bytes. They came while no request waited.
    early: u32,
    early_last: u32,
    early_count: u32,
    early_bytes: u32,
    /// Frames since the first of them that count for how long they wait.
    ticks: u32,
    /// Requests that expect no response and have not ended, oldest first.
    silent: u32,
    silent_last: u32,
    silent_count: u32,
    /// The first of those that are linked: in front of `silent` are those that ended with the segment at hand.
    silent_ended: u32,
    spare: u32,
    /// Place of the last frame: order, time and packet.
    order: i64,
    time: i64,
    packet: i64,
};

/// Which bytes of a connection are missing: whether its ids alone tell which request a response answers.
pub const Loss = enum(u8) {
    none = 0,
    some = 1,
    /// Responses may be among them.
    responses = 2,
    _,
};

pub const Connection = extern struct {
    /// Both endpoints: of the sender of direction 0 and of 1.
    high: [2]u64,
    low: [2]u64,
    port: [2]u16,
    /// 1 while it is here.
    here: u8,
    /// Direction of the client's stream.
    client: u8,
    /// 1 while it is among `Feed.active`.
    active: u8,
    /// Bytes of it are missing.
    loss: Loss,
    begun: Begun,
    /// Retransmitted segments since it was handed over.
    retransmits: u32,
    /// The packet clock, the packet and its time at the last packet; packets since it was handed over.
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
    /// Index of the request among the messages; NONE: of an earlier batch.
    message: u32,
    next: u32,
    code: u16,
    spare: u16,
};

pub const Flags = packed struct(u8) {
    request: bool = false,
    /// `start` is in the arena, not in the buffer.
    arena: bool = false,
    /// The header of a response has tagged fields.
    tags: bool = false,
    /// The request expects no response.
    silent: bool = false,
    /// No message: the exchange of a request that expects no response is over.
    ended: bool = false,
    rest: u3 = 0,
};

pub const Message = extern struct {
    /// Of the packet that completed it.
    order: i64,
    start: u64,
    first_packet: i64,
    last_packet: i64,
    /// The packet that completed it.
    packet: i64,
    /// The times of the packets with its first byte and its last.
    first_time: i64,
    time: i64,
    latency: i64,
    duration: i64,
    ordinal: i64,
    connection: u32,
    size: u32,
    /// Index of the request's response, or of the response's request; NONE: it is not among these messages.
    pair: u32,
    correlation: i32,
    /// Where the body starts, from `start` on.
    body: u32,
    /// Key times `VERSIONS` plus version.
    code: u16,
    /// Length of the client id at `start + 10`; -1: null.
    client_id: i16,
    /// Messages before it in its packet.
    step: u32,
    flags: Flags,
    spare: u8 = 0,
    /// Of a response: retransmitted segments since the exchange before it ended.
    retransmits: u16 = 0,
};

/// What is known of a version of an API: `Feed.kinds`.
pub const Kind = packed struct(u8) {
    /// Version of the request's header; 0: its messages are Python's.
    header: u2,
    /// Where `acks` is: 0 nowhere, 1 where the body begins, 2 and 3 behind a string or a compact string.
    acks: u2,
    /// The response's header has tagged fields.
    tags: bool,
    /// It is how clients greet: what comes of it is no end of the opening (`kafka/opening.py`).
    greets: bool,
    rest: u1,
    /// It was not asked for yet.
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

    // What is kept.
    connections: [*]Connection,
    connections_size: u64,
    /// Indices of connections by the hash of their endpoints; NONE: free. A power of two.
    table: [*]u32,
    table_size: u64,
    waiting: [*]Waiting,
    waiting_size: u64,
    held: [*]Held,
    held_size: u64,
    /// Connections that hold unfinished frames or segments, or had data since the last `carry`.
    active: [*]u32,
    active_used: u64,
    /// The first entry that is free, of `waiting` and of `held`; they are linked.
    free: u32,
    free_held: u32,
    max_frame: u32,
    /// 1: exchanges are told, with the retransmissions before their end.
    every_end: u32,
    /// Nanoseconds of the packet clock after which a connection is over.
    idle: i64,
    kinds: [*]const u8,

    // Connections that begin here.
    /// Rows with a SYN of endpoints that Python knows no connection of, rising, and how many of them were passed.
    begins: [*]const u32,
    begins_size: u64,
    begins_used: u64,
    /// As many indices of free connections, and the rows that those began with which are not free any more.
    places: [*]const u32,
    places_rows: [*]u32,
    places_used: u64,
    /// `MARKS` bytes, by a hash of the endpoints of the rows that were left: Python's connections may begin with these.
    marks: [*]u8,
    /// The row with the first request that was judged last, and whether it is one.
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
    /// Rows that are Python's.
    left: [*]u32,
    left_used: u64,
    /// Connections that were handed back.
    back: [*]u32,
    back_used: u64,
    /// Bytes that were delivered, and those of frames that became whole.
    bytes: u64,
    framed: u64,
    /// Bytes that came twice; bytes of unfinished frames and of segments that are held back, at the end.
    repeated: u64,
    kept: u64,
    asked: u32,
    spare: u32,
};

const Stop = error{ Odd, NoMessages, NoArena, NoWaiting, NoHeld, Unknown, Judge };

/// Rows from `row` on.
pub fn run(feed: *Feed) Status {
    while (feed.row < feed.rows) : (feed.row += 1) {
        const row = feed.row;
        const index = find(feed, row) orelse {
            if (!begin(feed, row)) leave(feed, row);
            continue;
        };
        const connection = &feed.connections[index];
        if (connection.here == 0) {
            leave(feed, row);
            continue;
        }
        packet(feed, connection, index, row) catch |reason| switch (reason) {
            error.Odd => {
                connection.here = 0;
                feed.back[feed.back_used] = index;
                feed.back_used += 1;
                leave(feed, row);
            },
            error.NoMessages => return .no_messages,
            error.NoArena => return .no_arena,
            error.NoWaiting => return .no_waiting,
            error.NoHeld => return .no_held,
            error.Unknown => return .unknown,
            error.Judge => return .judge,
        };
    }
    feed.kept = 0;
    for (feed.active[0..feed.active_used]) |index| {
        const connection = &feed.connections[index];
        if (connection.here == 0) continue;
        feed.kept += connection.dialogue.early_bytes + connection.dialogue.early_count * HELD_MEMORY;
        for (&connection.streams) |*stream| {
            feed.kept += stream.piece.have + stream.held_bytes + stream.held_count * HELD_MEMORY;
        }
    }
    return .done;
}

inline fn leave(feed: *Feed, row: u64) void {
    feed.left[feed.left_used] = @intCast(row);
    feed.left_used += 1;
}

// -- the table of connections --------------------------------------------------------------------------------------

inline fn hashEndpoint(high: u64, low: u64, port: u16) u64 {
    var value = (high ^ (low *% 0x9E37_79B9_7F4A_7C15)) +% port;
    value = (value ^ (value >> 32)) *% 0xD6E8_FEB8_6659_FD93;
    return value ^ (value >> 32);
}

inline fn slot(feed: *const Feed, hash: u64) u64 {
    return hash & (feed.table_size - 1);
}

fn hashOf(connection: *const Connection) u64 {
    return hashEndpoint(connection.high[0], connection.low[0], connection.port[0]) +%
        hashEndpoint(connection.high[1], connection.low[1], connection.port[1]);
}

inline fn isSource(feed: *const Feed, connection: *const Connection, side: usize, row: u64) bool {
    return connection.low[side] == feed.src_lo[row] and connection.port[side] == feed.src_port[row] and
        connection.high[side] == feed.src_hi[row] and connection.low[1 - side] == feed.dst_lo[row] and
        connection.port[1 - side] == feed.dst_port[row] and connection.high[1 - side] == feed.dst_hi[row];
}

inline fn hashOfRow(feed: *const Feed, row: u64) u64 {
    return hashEndpoint(feed.src_hi[row], feed.src_lo[row], feed.src_port[row]) +%
        hashEndpoint(feed.dst_hi[row], feed.dst_lo[row], feed.dst_port[row]);
}

fn find(feed: *const Feed, row: u64) ?u32 {
    var at = slot(feed, hashOfRow(feed, row));
    while (feed.table[at] != NONE) : (at = (at + 1) & (feed.table_size - 1)) {
        const index = feed.table[at];
        const connection = &feed.connections[index];
        if (isSource(feed, connection, 0, row) or isSource(feed, connection, 1, row)) return index;
    }
    return null;
}

/// Find a connection by its endpoints from now on. There is a free place in the table.
pub fn enter(feed: *Feed, index: u32) void {
    var at = slot(feed, hashOf(&feed.connections[index]));
    while (feed.table[at] != NONE) at = (at + 1) & (feed.table_size - 1);
    feed.table[at] = index;
}

/// Find it no more.
pub fn forget(feed: *Feed, index: u32) void {
    const mask = feed.table_size - 1;
    var at = slot(feed, hashOf(&feed.connections[index]));
    while (feed.table[at] != index) : (at = (at + 1) & mask) if (feed.table[at] == NONE) return;
    // Those behind it move up, unless they would come in front of their own place.
    var hole = at;
    while (true) {
        at = (at + 1) & mask;
        const other = feed.table[at];
        if (other == NONE) break;
        const home = slot(feed, hashOf(&feed.connections[other]));
        if (((at -% home) & mask) >= ((at -% hole) & mask)) {
            feed.table[hole] = other;
            hole = at;
        }
    }
    feed.table[hole] = NONE;
}

// -- connections that begin ------------------------------------------------------------------------------------------

/// Begin a connection with the SYN of a row whose endpoints are not here. False: the row is Python's.
fn begin(feed: *Feed, row: u64) bool {
    // Some had a connection here, to which their row went.
    while (feed.begins_used < feed.begins_size and feed.begins[feed.begins_used] < row) feed.begins_used += 1;
    if (feed.begins_used == feed.begins_size) return false;
    const mark = &feed.marks[(hashOfRow(feed, row) >> 40) % MARKS];
    if (feed.begins[feed.begins_used] != row) {
        mark.* = 1;
        return false;
    }
    feed.begins_used += 1;
    const source = [3]u64{ feed.src_hi[row], feed.src_lo[row], feed.src_port[row] };
    const target = [3]u64{ feed.dst_hi[row], feed.dst_lo[row], feed.dst_port[row] };
    const order = std.mem.order(u64, &source, &target);
    if (mark.* != 0 or order == .eq) {
        mark.* = 1;
        return false;
    }
    const index = feed.places[feed.places_used];
    feed.places_rows[feed.places_used] = @intCast(row);
    feed.places_used += 1;
    const connection = &feed.connections[index];
    const active = connection.active;
    connection.* = std.mem.zeroes(Connection);
    connection.active = active;
    // Direction 0 is that of the lower endpoint.
    const client: u8 = @intFromBool(order == .gt);
    connection.client = client;
    connection.high[client], connection.high[1 - client] = .{ source[0], target[0] };
    connection.low[client], connection.low[1 - client] = .{ source[1], target[1] };
    connection.port[client], connection.port[1 - client] = .{ feed.src_port[row], feed.dst_port[row] };
    connection.here = 1;
    connection.begun = .syn;
    // As `kafka/exchange.py` and `kafka/dialogue.py` begin.
    connection.dialogue.ids_rise = 1;
    connection.dialogue.most = 1;
    connection.dialogue.first = NONE;
    connection.dialogue.last = NONE;
    connection.dialogue.early = NONE;
    connection.dialogue.early_last = NONE;
    connection.dialogue.silent = NONE;
    connection.dialogue.silent_last = NONE;
    connection.dialogue.silent_ended = NONE;
    connection.dialogue.time = NO_TIME;
    for (&connection.streams) |*stream| {
        stream.piece.need = 4;
        stream.held = NONE;
        stream.held_last = NONE;
        stream.acked = NO_TIME;
    }
    connection.streams[client].next = feed.seq[row] +% 1;
    pass(feed, connection, row);
    enter(feed, index);
    return true;
}

/// The answer to a SYN.
fn answer(feed: *const Feed, connection: *Connection, row: u64) Stop!void {
    const client = &connection.streams[connection.client];
    const is_answer = feed.flags[row] & (SYN | FIN | RST | ACK) == SYN | ACK and feed.wire[row] == 0 and
        feed.ack[row] == client.next and isSource(feed, connection, 1 - connection.client, row);
    if (!is_answer) return error.Odd;
    client.ack = feed.ack[row];
    connection.streams[1 - connection.client].next = feed.seq[row] +% 1;
    connection.begun = .answered;
    pass(feed, connection, row);
}

/// The first data of a connection have to begin with a whole frame that Python judges to be a request.
fn judge(feed: *Feed, connection: *const Connection, index: u32, direction: usize, row: u64) Stop!void {
    const size: u64 = @intCast(feed.length[row]);
    if (direction != connection.client or feed.seq[row] != connection.streams[direction].next) return error.Odd;
    if (feed.judged_row == row) return if (feed.judged == 0) error.Odd;
    if (size < 4 + HEADER) return error.Odd;
    const at: u64 = @intCast(feed.offset[row]);
    const found = try frameSize(feed, feed.buffer[at..][0..4]);
    if (4 + @as(u64, found) > size) return error.Odd;
    feed.asked_at = at + 4;
    feed.asked_size = found;
    feed.asked_connection = index;
    return error.Judge;
}

// -- packets ---------------------------------------------------------------------------------------------------------

fn packet(feed: *Feed, connection: *Connection, index: u32, row: u64) Stop!void {
    const wire = feed.wire[row];
    const clock = feed.clock[row];
    if (feed.time[row] == NO_TIME or clock -% connection.clock >= feed.idle) return error.Odd;
    if (connection.begun == .syn) return answer(feed, connection, row);
    if (feed.flags[row] & (SYN | FIN | RST | ACK) != ACK or wire != feed.length[row] or wire < 0) return error.Odd;
    const direction: usize = @intFromBool(!isSource(feed, connection, 0, row));
    const peer = &connection.streams[1 - direction];
    const holds = connection.streams[direction].held != NONE or peer.held != NONE;
    if (holds and mayBeGap(feed, connection, direction, row)) return error.Odd;
    const number = numberOf(feed, row);
    const begins = connection.begun == .answered or connection.begun == .open;
    if (begins and connection.begun == .answered and direction != connection.client) return error.Odd;
    if (wire > 0) {
        const at: u64 = @intCast(feed.offset[row]);
        if (at + @as(u64, @intCast(wire)) > feed.buffer_size) return error.Odd;
        if (begins) try judge(feed, connection, index, direction, row);
        try data(feed, connection, index, direction, row, number);
        if (begins) connection.begun = .judged;
        if (connection.active == 0) {
            connection.active = 1;
            feed.active[feed.active_used] = index;
            feed.active_used += 1;
        }
    }
    if (begins and wire == 0) connection.begun = .open;
    peer.ack = feed.ack[row];
    pass(feed, connection, row);
    if (connection.streams[direction].held != NONE or peer.held != NONE) {
        connection.count += 1;
        if (peer.held != NONE) {
            peer.opened = connection.count;
            peer.acked = @max(peer.acked, acknowledged(peer, feed.ack[row]));
        }
    }
}

inline fn numberOf(feed: *const Feed, row: u64) i64 {
    return (@as(i64, feed.capture[row]) << 40) | feed.number[row];
}

/// The packet was the last one so far.
inline fn pass(feed: *const Feed, connection: *Connection, row: u64) void {
    connection.clock = feed.clock[row];
    connection.last_packet = numberOf(feed, row);
    connection.last_time = feed.time[row];
    connection.packets += 1;
}

/// How far an acknowledgement goes, as `bytes` counts.
inline fn acknowledged(stream: *const Stream, ack: u32) i64 {
    return @as(i64, @intCast(stream.bytes)) + @as(i32, @bitCast(ack -% stream.next));
}

/// Whether a packet may make a gap of a hole: Python finds out.
fn mayBeGap(feed: *const Feed, connection: *const Connection, direction: usize, row: u64) bool {
    const count = connection.count + 1;
    for (&connection.streams, 0..) |*stream, side| {
        if (stream.held == NONE) continue;
        const first = &feed.held[stream.held];
        var acked = stream.acked;
        if (side != direction) {
            acked = @max(acked, acknowledged(stream, feed.ack[row]));
        } else if (count - stream.opened >= ONE_SIDED_PACKETS) return true;
        if (acked < acknowledged(stream, first.seq)) continue;
        if (count - first.count >= GRACE_PACKETS or feed.clock[row] -% first.clock >= GRACE_NS) return true;
    }
    return false;
}

// -- segments --------------------------------------------------------------------------------------------------------

/// The data of a packet.
fn data(feed: *Feed, connection: *Connection, index: u32, direction: usize, row: u64, number: i64) Stop!void {
    const stream = &connection.streams[direction];
    const size: u32 = @intCast(feed.length[row]);
    const seq = feed.seq[row];
    const ahead: i32 = @bitCast(seq -% stream.next);
    if (ahead == 0) {
        try deliver(feed, connection, index, direction, row, number);
    } else {
        const copied = isCopy(stream, .{ .seq = seq, .wire = size, .ident = feed.ident[row] });
        if (ahead > 0) {
            if (ahead > MAX_AHEAD) return error.Odd;
            if (copied and isHeld(feed, stream, seq, size)) {
                stream.repeated += size;
                feed.repeated += size;
            } else try hold(feed, connection, stream, row, number);
        } else {
            // What reaches beyond what is there, or in front of its first byte, is Python's.
            const behind: u32 = @abs(ahead);
            if (behind < size or behind > MAX_AHEAD or behind > stream.before + stream.bytes) return error.Odd;
            if (!copied and !(size == 1 and behind == 1)) {
                if (feed.every_end != 0 and connection.dialogue.retransmits == std.math.maxInt(u16)) return error.Odd;
                connection.dialogue.retransmits +%= 1;
                connection.retransmits +%= 1;
            }
            stream.repeated += size;
            feed.repeated += size;
        }
    }
    stream.recent[stream.packets % RECENT] = .{ .seq = seq, .wire = size, .ident = feed.ident[row] };
    stream.packets += 1;
}

fn isCopy(stream: *const Stream, packet_: Recent) bool {
    for (stream.recent[0..@min(stream.packets, RECENT)]) |one| if (std.meta.eql(one, packet_)) return true;
    return false;
}

/// Whether one segment that is held back has all of these bytes.
fn isHeld(feed: *const Feed, stream: *const Stream, seq: u32, size: u32) bool {
    const start = seq -% stream.next;
    var entry = stream.held;
    while (entry != NONE) : (entry = feed.held[entry].next) {
        const one = &feed.held[entry];
        const from = one.seq -% stream.next;
        if (from <= start and start + size <= from + one.size) return true;
    }
    return false;
}

/// Hold a segment back that overlaps with no other.
fn hold(feed: *Feed, connection: *const Connection, stream: *Stream, row: u64, number: i64) Stop!void {
    const size: u32 = @intCast(feed.length[row]);
    if (stream.held_count == MAX_HELD_SEGMENTS or stream.held_bytes + size > MAX_HELD_BYTES) return error.Odd;
    const seq = feed.seq[row];
    const start = seq -% stream.next;
    // Most come behind the last one.
    var before = stream.held_last;
    if (before != NONE and start < feed.held[before].seq -% stream.next) {
        before = NONE;
        var entry = stream.held;
        while (feed.held[entry].seq -% stream.next <= start) : (entry = feed.held[entry].next) before = entry;
    }
    const after = if (before == NONE) stream.held else feed.held[before].next;
    if (before != NONE and feed.held[before].seq -% stream.next + feed.held[before].size > start) return error.Odd;
    if (after != NONE and start + size > feed.held[after].seq -% stream.next) return error.Odd;
    const entry = feed.free_held;
    if (entry == NONE) return error.NoHeld;
    if (size > feed.arena_size - feed.arena_used) return error.NoArena;
    feed.free_held = feed.held[entry].next;
    @memcpy(feed.arena[feed.arena_used..][0..size], feed.buffer[@intCast(feed.offset[row])..][0..size]);
    feed.held[entry] = .{
        .at = feed.arena_used,
        .packet = number,
        .time = feed.time[row],
        .count = connection.count,
        .clock = feed.clock[row],
        .seq = seq,
        .size = size,
        .next = after,
    };
    feed.arena_used += size;
    if (stream.held == NONE) {
        stream.opened = connection.count;
        stream.acked = NO_TIME;
    }
    if (before == NONE) stream.held = entry else feed.held[before].next = entry;
    if (after == NONE) stream.held_last = entry;
    stream.held_count += 1;
    stream.held_bytes += size;
}

/// Take the segment that comes next, and those behind it that were held back.
fn deliver(feed: *Feed, connection: *Connection, index: u32, direction: usize, row: u64, number: i64) Stop!void {
    const stream = &connection.streams[direction];
    var size: u32 = @intCast(feed.length[row]);
    if (stream.held != NONE) {
        if (feed.held[stream.held].seq -% stream.next < size) return error.Odd;
        // The requests of early responses may be here.
        if (direction == connection.client and connection.dialogue.early != NONE) return error.Odd;
    }
    const at: u64 = @intCast(feed.offset[row]);
    const before = Before.of(feed, connection, direction);
    errdefer before.restore(feed, connection, direction);
    var step: u32 = 0;
    const time = feed.time[row];
    const fresh = Part{ .at = at, .end = at + size, .arena = false, .packet = number, .time = time };
    try segment(feed, connection, index, direction, row, &step, fresh);
    var entry = stream.held;
    var taken: u32 = 0;
    while (entry != NONE and feed.held[entry].seq == stream.next +% size) : (entry = feed.held[entry].next) {
        const one = &feed.held[entry];
        const part = Part{ .at = one.at, .end = one.at + one.size, .arena = true, .packet = one.packet, .time = one.time };
        try segment(feed, connection, index, direction, row, &step, part);
        size += one.size;
        taken += 1;
    }
    before.commit(feed, connection);
    stream.next +%= size;
    stream.bytes += size;
    feed.bytes += size;
    feed.framed += stream.framed - before.framed;
    if (taken == 0) return;
    stream.opened = connection.count;
    for (0..taken) |_| {
        stream.held_bytes -= feed.held[stream.held].size;
        stream.held = releaseHeld(feed, stream.held);
    }
    stream.held_count -= taken;
    if (stream.held == NONE) stream.held_last = NONE;
}

/// What a segment changes, to be put back where it turns out not to be for here.
const Before = struct {
    dialogue: Dialogue,
    piece: Piece,
    framed: u64,
    messages: u64,
    arena: u64,

    inline fn of(feed: *const Feed, connection: *const Connection, direction: usize) Before {
        const stream = &connection.streams[direction];
        return .{
            .dialogue = connection.dialogue,
            .piece = stream.piece,
            .framed = stream.framed,
            .messages = feed.messages_used,
            .arena = feed.arena_used,
        };
    }

    fn restore(self: *const Before, feed: *Feed, connection: *Connection, direction: usize) void {
        const now = connection.dialogue;
        if (direction == connection.client) {
            // Requests of this segment are behind those that waited.
            var entry = if (self.dialogue.last == NONE) now.first else feed.waiting[self.dialogue.last].next;
            while (entry != NONE) entry = release(feed, entry);
            if (self.dialogue.last != NONE) feed.waiting[self.dialogue.last].next = NONE;
            const silent = self.dialogue.silent_last;
            entry = if (silent == NONE) now.silent_ended else feed.waiting[silent].next;
            while (entry != NONE) entry = release(feed, entry);
            if (silent != NONE) feed.waiting[silent].next = NONE;
        } else {
            var entry = self.dialogue.first;
            while (entry != now.first) : (entry = feed.waiting[entry].next) {
                const asked = feed.waiting[entry].message;
                if (asked != NONE) feed.messages[asked].pair = NONE;
            }
        }
        const last = self.dialogue.early_last;
        var early = if (last == NONE) now.early else feed.held[last].next;
        while (early != NONE) early = releaseHeld(feed, early);
        if (last != NONE) feed.held[last].next = NONE;
        connection.dialogue = self.dialogue;
        connection.streams[direction].piece = self.piece;
        connection.streams[direction].framed = self.framed;
        feed.messages_used = self.messages;
        feed.arena_used = self.arena;
    }

    /// Requests that were answered leave.
    inline fn commit(self: *const Before, feed: *Feed, connection: *Connection) void {
        const dialogue = &connection.dialogue;
        while (dialogue.silent_ended != dialogue.silent) dialogue.silent_ended = release(feed, dialogue.silent_ended);
        if (dialogue.silent == NONE) dialogue.silent_last = NONE;
        var entry = self.dialogue.first;
        if (entry == NONE) return;
        while (entry != dialogue.first) entry = release(feed, entry);
    }
};

/// An entry is free; returns the one behind it.
inline fn release(feed: *Feed, entry: u32) u32 {
    const next = feed.waiting[entry].next;
    feed.waiting[entry].next = feed.free;
    feed.free = entry;
    return next;
}

/// The same for what is held back.
inline fn releaseHeld(feed: *Feed, entry: u32) u32 {
    const next = feed.held[entry].next;
    feed.held[entry].next = feed.free_held;
    feed.free_held = entry;
    return next;
}

/// A frame that is whole.
const Frame = struct {
    start: u64,
    size: u32,
    bytes: []const u8,
    arena: bool,
    first_packet: i64,
    last_packet: i64,
    first_time: i64,
};

/// A segment that is delivered: bytes of the buffer or of the arena.
const Part = struct {
    at: u64,
    end: u64,
    arena: bool,
    packet: i64,
    time: i64,
};

/// Cut a part of a stream into frames, which are there since the packet at `row`; `step`: how many of these there were.
inline fn segment(
    feed: *Feed,
    connection: *Connection,
    index: u32,
    direction: usize,
    row: u64,
    step: *u32,
    delivered: Part,
) Stop!void {
    const stream = &connection.streams[direction];
    const piece = &stream.piece;
    const number = delivered.packet;
    const bytes = if (delivered.arena) @as([*]const u8, feed.arena) else feed.buffer;
    var at = delivered.at;
    const end = delivered.end;
    while (at < end) {
        if (piece.have == 0 and end - at >= 4) {
            const size = try frameSize(feed, bytes[at..][0..4]);
            if (size <= end - at - 4) {
                try message(feed, connection, index, direction, row, number, step, .{
                    .start = at + 4,
                    .size = size,
                    .bytes = bytes[at + 4 ..][0..size],
                    .arena = delivered.arena,
                    .first_packet = number,
                    .last_packet = number,
                    .first_time = delivered.time,
                });
                stream.framed += 4 + size;
                at += 4 + size;
                continue;
            }
        }
        if (piece.have == 0) {
            piece.first_packet = number;
            piece.last_packet = number;
            piece.first_time = delivered.time;
            piece.need = 4;
            piece.sized = 0;
            piece.room = 0;
        }
        const part: u32 = @intCast(@min(end - at, piece.need - piece.have));
        try makeRoom(feed, piece, part);
        @memcpy(feed.arena[piece.at + piece.have ..][0..part], bytes[at..][0..part]);
        piece.have += part;
        piece.first_packet = @min(piece.first_packet, number);
        piece.last_packet = @max(piece.last_packet, number);
        piece.last_time = feed.time[row];
        at += part;
        if (piece.sized == 0 and piece.have == 4) {
            piece.need = 4 + try frameSize(feed, feed.arena[piece.at..][0..4]);
            piece.sized = 1;
        }
        if (piece.sized != 0 and piece.have == piece.need) {
            const size = piece.need - 4;
            try message(feed, connection, index, direction, row, number, step, .{
                .start = piece.at + 4,
                .size = size,
                .bytes = feed.arena[piece.at + 4 ..][0..size],
                .arena = true,
                .first_packet = piece.first_packet,
                .last_packet = piece.last_packet,
                .first_time = piece.first_time,
            });
            stream.framed += piece.need;
            piece.have = 0;
            piece.need = 4;
            piece.sized = 0;
        }
    }
}

inline fn frameSize(feed: *const Feed, prefix: *const [4]u8) Stop!u32 {
    const size = std.mem.readInt(u32, prefix, .big);
    if (size > feed.max_frame or size > MAX_FRAME) return error.Odd;
    return size;
}

/// Room for so many bytes more: twice what there is then, so that a frame is moved a few times at most.
inline fn makeRoom(feed: *Feed, piece: *Piece, part: u32) Stop!void {
    const least = piece.have + part;
    if (least <= piece.room) return;
    var room = @max(2 * least, FIRST_ROOM);
    if (piece.sized != 0) room = @min(room, piece.need);
    if (room > feed.arena_size - feed.arena_used) return error.NoArena;
    const at = feed.arena_used;
    @memcpy(feed.arena[at..][0..piece.have], feed.arena[piece.at..][0..piece.have]);
    piece.at = at;
    piece.room = room;
    feed.arena_used += room;
}

// -- messages --------------------------------------------------------------------------------------------------------

fn message(
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

/// Add a message to those found.
inline fn put(feed: *Feed, step: *u32, found: Message) Stop!void {
    if (feed.messages_used == feed.messages_size) return error.NoMessages;
    feed.messages[feed.messages_used] = found;
    feed.messages[feed.messages_used].step = step.*;
    feed.messages_used += 1;
    step.* += 1;
}

/// The exchange of the oldest request that expects no response is over, at the message `by`.
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

/// Keep a response that came while no request waits: its own may be behind a hole that is not known for one yet.
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
    // A client that sends without being answered is past the opening, as for `kafka/dialogue.py`.
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
        // A longer transactional id than 126 bytes is Python's.
        if (body.len < 1 or body[0] >= 0x80) return error.Odd;
        at = @max(body[0], 1);
    }
    if (at + 2 > body.len) return error.Odd;
    return std.mem.readInt(i16, body[at..][0..2], .big);
}

fn response(feed: *Feed, connection: *Connection, found: *Message, frame: Frame) Stop!void {
    const dialogue = &connection.dialogue;
    const bytes = frame.bytes;
    // It answers a request, so responses that came before their own wait no more.
    if (bytes.len < 4 or dialogue.early != NONE) return error.Odd;
    const id = std.mem.readInt(i32, bytes[0..4], .big);
    const waiting = &feed.waiting[dialogue.first];
    if (waiting.correlation != id) return error.Odd;
    const latency = frame.first_time -% waiting.time;
    if (latency < 0) return error.Odd;
    const is_behind = connection.streams[connection.client].held != NONE;
    // The request that it answers may be missing, or held back, and have the same id: its body decides, by Python.
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
    // Behind a hole, more may be outstanding than the client sent ahead.
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

/// Move what is not delivered from another arena to this one, and take the messages of an earlier batch for gone.
pub fn carry(feed: *Feed, from: [*]const u8) Status {
    var active: u64 = 0;
    for (feed.active[0..feed.active_used]) |index| {
        const connection = &feed.connections[index];
        connection.active = 0;
        if (connection.here == 0) continue;
        for (&connection.streams) |*stream| {
            const piece = &stream.piece;
            if (piece.have > 0) {
                piece.at = move(feed, from, piece.at, piece.have) orelse return .no_arena;
                piece.room = piece.have;
                connection.active = 1;
            }
            var entry = stream.held;
            while (entry != NONE) : (entry = feed.held[entry].next) {
                const one = &feed.held[entry];
                one.at = move(feed, from, one.at, one.size) orelse return .no_arena;
                connection.active = 1;
            }
        }
        var early = connection.dialogue.early;
        while (early != NONE) : (early = feed.held[early].next) {
            const one = &feed.held[early];
            one.at = move(feed, from, one.at, one.size) orelse return .no_arena;
            connection.active = 1;
        }
        var entry = connection.dialogue.first;
        while (entry != NONE) : (entry = feed.waiting[entry].next) feed.waiting[entry].message = NONE;
        if (connection.active == 0) continue;
        feed.active[active] = index;
        active += 1;
    }
    feed.active_used = active;
    return .done;
}

inline fn move(feed: *Feed, from: [*]const u8, at: u64, size: u32) ?u64 {
    if (size > feed.arena_size - feed.arena_used) return null;
    const to = feed.arena_used;
    @memcpy(feed.arena[to..][0..size], from[at..][0..size]);
    feed.arena_used += size;
    return to;
}
