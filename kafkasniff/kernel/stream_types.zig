//! Types that the stages of the stream engine share: packets in, rows out, and questions to Python.
//!
//! `native/streams.py` reads the structures that Python shares from `layout`.

const std = @import("std");

pub const NO_TIME = std.math.minInt(i64);
/// No position in a stream.
pub const UNKNOWN = std.math.minInt(i64);

/// What happened on a connection, in order: a message, or anything else. `kind` says which fields are set.
pub const Row = extern struct {
    /// Order of the packet at which it became known; never decreases within a connection.
    order: i64 = 0,
    /// Message: the packet that completed it, and its time; else the packet that the event belongs to.
    packet: i64 = 0,
    time: i64 = NO_TIME,
    /// Message: address of its bytes, in the batch or in memory that is valid until the next call.
    at: u64 = 0,
    first_packet: i64 = 0,
    last_packet: i64 = 0,
    first_time: i64 = NO_TIME,
    latency: i64 = NO_TIME,
    duration: i64 = NO_TIME,
    /// Response: how long its request waited for others, and how long a quota delayed one of both (`stream_turns.zig`).
    /// Exchange without a response: `muted` is the time until which the client was to send nothing.
    behind: i64 = NO_TIME,
    muted: i64 = NO_TIME,
    /// Ordinal of the exchange within the connection.
    ordinal: i64 = -1,
    connection: u32 = 0,
    /// Rows and messages of a call before it.
    step: u32 = 0,
    /// Length prefix of a message, and how many of these bytes were captured.
    size: u32 = 0,
    have: u32 = 0,
    correlation: i32 = 0,
    /// Position of a request's body; 0: no valid header.
    body: u32 = 0,
    /// Retransmitted segments since the previous exchange of the connection ended.
    retransmits: u32 = 0,
    spare: u32 = 0,
    /// Position in its stream of the length prefix of a message, or of an incomplete frame; -1: it came late.
    position: i64 = -1,
    key: i16 = -1,
    version: i16 = -1,
    kind: Kind,
    direction: u8 = 0,
    flags: u16 = 0,
    /// Further numbers, by kind.
    a: i64 = 0,
    b: i64 = 0,
};

pub const Kind = enum(u8) {
    request,
    response,
    token,
    /// A connection began: `Opened` at index `a`.
    opened,
    /// `a`: 1 Kafka, whose client is `direction`; 0 not, for the reason `b`.
    verdict,
    /// An exchange ended without a response: status `a`; `b`: of a request after the broker's FIN, nanoseconds between.
    ended,
    /// The TCP problem `a`, with the number `b`.
    tcp,
    /// The stream's first `a` bytes were skipped.
    resync,
    /// A length prefix `a` that cannot be one; `b`: all of the connection was captured so far.
    impossible,
    /// A frame that is not a message, for the reason `a`; `b`: so many more of them followed the last one that was reported,
    /// with `size` bytes.
    unreadable,
    /// Text `a` of the answers to the questions of this call; `b`: bytes.
    text,
    /// The stream ended with `a` bytes; `b`: of an incomplete frame, of whose length prefix `size` the first `have`
    /// bytes were captured.
    cut,
    /// The opening of the connection is over, by a regular message or by a response without its request.
    unexpected,
    /// Raw tokens follow: the mechanism's name is `size` bytes at `at`; `a`: 1 GSSAPI without a handshake.
    sasl,
    /// A client id that requests of the connection had not had before: `size` bytes at `at`.
    client,
    /// A connection ended: `Ending` at index `a`.
    closed,
    /// Later packets with its endpoints are a new connection.
    forgotten,
};

pub const SILENT = 1;
pub const ORPHAN = 2;
pub const OUT_OF_ORDER = 4;
pub const ANSWERS_SILENT = 8;
/// The problem was found before the verdict: it is reported at the verdict.
pub const BEFORE_VERDICT = 16;
/// Further ones of this kind are not reported.
pub const LAST = 32;
/// The loss is not reported with this exchange.
pub const UNREPORTED = 64;
/// An exchange of the connection was over before this request.
pub const LATE = 128;

pub const Status = enum(u8) { answered, no_response, unanswered, lost, open, orphan };

pub const TcpProblem = enum(u8) {
    gap,
    one_direction,
    syn_ignored,
    data_after_rst,
    /// By its sequence number; by its acknowledgement.
    rst_ignored,
    rst_unacknowledged,
    fin_ignored,
    data_after_fin,
    out_of_window,
};

pub const Unreadable = enum(u8) { not_request, truncated, too_short, not_response };
/// Shorter frames cannot be a response, or a request.
pub const LEAST = [2]i64{ 4, 8 };

pub const Reason = enum(u8) { fin, rst, reused, idle, end };

/// A connection that began.
pub const Opened = extern struct {
    high: [2]u64,
    low: [2]u64,
    port: [2]u16,
    /// Direction of the client's stream by a port that is taken as Kafka's; -1: none.
    forced: i8,
    spare: [3]u8 = @splat(0),
    /// Its number among the connections there are, which a later connection may have again.
    place: u32,
    spare2: u32 = 0,
    first_order: i64,
    first_packet: i64,
    first_time: i64,
};

/// The account of a connection that ended.
pub const Ending = extern struct {
    first_order: i64,
    last_time: i64,
    packets: i64,
    retransmits: i64,
    decoded: [2]i64,
    skipped: [2]i64,
    lost: [2]i64,
    pending: [2]i64,
    repeated: [2]i64,
    ignored: [2]i64,
    /// When the side `by` ended its stream.
    by_time: i64,
    /// The oldest request without a response: when it was complete, and its API and version.
    asked_time: i64,
    asked_key: i16,
    asked_version: i16,
    /// Requests without a response.
    waiting: u32,
    /// Size of the client's incomplete request, or of one above the limit; -1: none.
    announced: i64,
    /// Requests and responses so far.
    requests: i64,
    responses: i64,
    verdict: u8,
    /// Direction of the client's stream; -1: unknown.
    client: i8,
    reason: Reason,
    syn_seen: u8,
    /// Direction of the first FIN or RST; -1: none.
    by: i8,
    heard: [2]u8,
    /// All of both streams was captured.
    whole: u8,
    /// The broker's stream has the beginning of a response.
    answering: u8,
    /// The client's stream is in step; it ends within a request.
    in_step: u8,
    asking: u8,
    /// The broker answered a request that it serves only after authentication.
    served: u8,
    spare: [4]u8 = @splat(0),
};

/// The network of a connection (`link.zig`). The first of two values is the client's. Unknown durations are -1.
pub const LinkRow = extern struct {
    high: [2]u64,
    low: [2]u64,
    first_time: i64,
    last_time: i64,
    /// The first FIN or RST.
    ended: i64,
    /// When the client last sent payload.
    spoke: i64,
    /// The lowest, from the capture point to the broker and back, and to the client and back.
    round_trips: [2]i64,
    lost_longest: i64,
    slowest_trip: i64,
    /// Round trips that were measured, to the broker and to the client, and those that only a queue explains.
    trips: [2]i64,
    slow_trips: [2]i64,
    packets: [2]i64,
    data: [2]i64,
    again: [2]i64,
    late: [2]i64,
    lost: [2]i64,
    closed: [2]i64,
    closed_ns: [2]i64,
    syns: u32,
    /// Its first `LinkStall`, and their number.
    stalls: u32,
    stalls_count: u32,
    port: [2]u16,
    opening: Opening,
    /// 0: the client; -1: nobody.
    ended_by: i8,
    reset: u8,
    spare: [5]u8,
};

/// The outcome of a handshake; unknown: its beginning was not captured.
pub const Opening = enum(u8) { unknown, answered, refused, unanswered };

/// A time in which data of a sender did not arrive.
pub const LinkStall = extern struct {
    /// When the missing data was first sent, was last acknowledged in part, or when later data arrived.
    since: i64,
    /// When it arrived; otherwise the last retransmission, or the last packet of a connection with a hole.
    until: i64,
    /// Retransmissions in this time, and when the last one was sent.
    retries: i64,
    retried: i64,
    /// Bytes of the smallest retransmitted segment, or of the hole.
    size: i64,
    /// Bytes of the largest segment of this sender that had arrived.
    passed: i64,
    /// Packets of the receiver in this time.
    heard: i64,
    /// The longest time in it without new data of the receiver.
    quiet: i64,
    /// 0: the client.
    sender: u8,
    kind: StallKind,
    /// The data arrived in the end.
    over: u8,
    spare: [5]u8 = @splat(0),
};

pub const StallKind = enum(u8) { unacknowledged, hole };

/// What the network was like during an exchange. The first of two values is the client's.
pub const Network = extern struct {
    ordinal: i64,
    connection: u32,
    spare: u32,
    /// To the broker and back, and to the client and back, by the handshake, and the lowest until the response was
    /// complete; -1: unknown.
    handshake: [2]i64,
    round_trips: [2]i64,
    /// Data that the client had sent by the end of the request was last retransmitted then.
    resent_at: i64,
    /// End of the latest earlier response of the connection, and of its latest earlier message or token.
    before_done: i64,
    quiet_since: i64,
    /// Until then an earlier response of the connection asked the client to send nothing.
    muted_until: i64,
    again: [2]i64,
    late: [2]i64,
    late_ns: [2]i64,
    closed: [2]i64,
    closed_ns: [2]i64,
};

/// Sums over all connections so far.
pub const Totals = extern struct {
    seen: i64 = 0,
    decoded: i64 = 0,
    lost: i64 = 0,
    pending: i64 = 0,
    repeated: i64 = 0,
    ignored: i64 = 0,
    undecided: i64 = 0,
};

pub const Packet = struct {
    dir: usize,
    order: i64,
    packet: i64,
    time: i64,
    clock: i64,
    seq: u32,
    ack: u32,
    flags: u8,
    data: []const u8,
    wire: i64,
    ident: u32,
    window: u16 = 0,
};

/// Contiguous bytes of a stream. `order`, `released`: of the packet that made them contiguous; `at`: position of the
/// first byte in the stream.
pub const Segment = struct { data: []const u8, packet: i64, time: i64, order: i64, released: i64, at: i64 = 0 };

pub const Gap = struct {
    order: i64,
    size: i64,
    packet: i64,
    time: i64,
    /// The snap length cut the bytes off.
    snapped: bool = false,
    resumed: i64,
    /// No packet of the sender was captured.
    unheard: bool = false,
    /// Exactly `size` bytes are missing.
    exact: bool = true,
};

/// A question to Python, and its answer.
pub const Ask = extern struct {
    kind: Question,
    connection: u32,
    direction: u32,
    verdict: u32,
    aligned: [2]u32,
    data: u64,
    size: u64,
    packet: i64,
    time: i64,
    order: i64,
    released: i64,
    a: i64,
    b: i64,
    c: i64,
    // The answer.
    /// A text of Python's, plus one; 0: none. `out_count`: bytes that it is about.
    out_text: i64,
    out_count: i64,
    /// Facts: the programs of both directions.
    out_programs: [2]u64,
};

pub const Question = enum(u32) {
    /// What pairing needs to know of version `b` of API `a` (`Facts`); the answer is its `Traits`.
    facts,
    /// `data` and `size`: the highest plausible versions of APIs, by key (`i32`).
    highest_versions,
    /// Whether a PROXY protocol header is complete here, or none begins; `out_count`: its length.
    prologue,
    /// Whether a request may begin with these bytes, or, with `c`, of whatever API in a frame of size `a`; `b`: they are
    /// the first of their stream.
    begins_request,
    /// The same for the fields before a client id.
    begins_header,
    /// The same for a response to version `b` of API `a`.
    begins_response,
    /// How likely this is a request: `Answer.enter` if it decodes exactly, or `plausible`. `a`: of unknown kind; `b`: the
    /// first of its stream; `c`: as in `begins_request`.
    judge_request,
    /// Whether this is the response to the request of `b` bytes at `a`.
    answers,
    /// A text (`out_text`): why these first bytes are not Kafka's; `a`: they are the first of their stream.
    against,
    may_be_request,
    fits,
    exact_response,
    likely_request,
    item,
};

pub const Answer = enum(i32) { nothing = 0, enter = 1, plausible = 2, _ };

/// Items of a connection that passes through TLS, both ways (`Ask.a`).
/// The count of a problem that is not about bytes.
pub const NO_BYTES: i64 = -1;

pub const Item = enum(i64) { segment, started, gap, late, hole, retransmit, closed, problem, wrapped, rejected, text };

pub const Traits = packed struct(u8) {
    /// Version of the header of requests.
    header: u2 = 0,
    known: bool = false,
    /// Its messages can be regular (`streams.Engine.messages`): none is needed to read a later one.
    usual: bool = false,
    /// Headers of responses have tagged fields.
    tagged_answer: bool = false,
    /// Brokers that throttle answer immediately, and read nothing more for the throttle time.
    throttled_at_once: bool = false,
    /// Brokers answer only after authentication.
    served: bool = false,
    asked: bool = false,
};

pub const Facts = struct {
    traits: Traits = .{},
    /// Programs of the fields of requests and responses that pairing reads (`stream_roles.zig`); 0: there are none.
    request: u64 = 0,
    response: u64 = 0,
};

/// Bytes of a search: the segment that ends at `end`, counted like `Stream.base`.
pub const Piece = extern struct { packet: i64, time: i64, order: i64, released: i64, end: i64 };

/// Columns of a batch.
pub const Batch = extern struct {
    rows: u64,
    order: [*]const i64,
    capture: [*]const i32,
    number: [*]const i64,
    time_ns: [*]const i64,
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
    wire_length: [*]const i32,
    ident: [*]const u32,
    window: [*]const u16,
    buffer: [*]const u8,
    buffer_size: u64,
    end_order: i64,
    end_clock: i64,
    /// Order and packet clock of all packets, those of other shards included: silent connections end at them.
    ticks: u64,
    tick_order: [*]const i64,
    tick_clock: [*]const i64,
    /// Results, if they are wanted: the number of each row's connection, and the position of its payload in its stream.
    owners: ?[*]u32,
    positions: ?[*]i64,
};

/// Results of a call, valid until the next one.
pub const View = extern struct {
    rows: u64,
    rows_count: u64,
    messages: u64,
    messages_count: u64,
    /// Requests of earlier calls that leave.
    asked: u64,
    asked_count: u64,
    /// Bytes of messages that are not in the batch.
    arena_size: u64,
    /// Bytes of the requests that are kept for later calls.
    kept_bytes: u64,
    opened: u64,
    opened_count: u64,
    endings: u64,
    endings_count: u64,
    links: u64,
    links_count: u64,
    stalls: u64,
    stalls_count: u64,
    networks: u64,
    networks_count: u64,
    totals: Totals,
    memory: u64,
    connections: u64,
    questions: u64,
};

/// What a connection holds.
pub const Holding = extern struct {
    connection: u32,
    closed: u32,
    memory: u64,
    clock: i64,
    first_order: i64,
    /// Bytes that may still become frames.
    waiting: i64,
    place: u64,
};

/// The structures that Python shares: `name=field:offset:size,…;`, with a `size` entry for the whole.
pub const layout = describe(.{ .Row = Row, .Opened = Opened, .Ending = Ending, .Ask = Ask, .Batch = Batch, .View = View, .Holding = Holding, .Totals = Totals, .LinkRow = LinkRow, .LinkStall = LinkStall, .Network = Network });

fn describe(comptime types: anytype) [:0]const u8 {
    @setEvalBranchQuota(200_000);
    comptime var text: [:0]const u8 = "";
    inline for (comptime std.meta.fieldNames(@TypeOf(types))) |name| {
        const T = @field(types, name);
        text = text ++ name ++ "=";
        inline for (comptime std.meta.fieldNames(T)) |field| {
            text = text ++ field ++ std.fmt.comptimePrint(":{d}:{s},", .{ @offsetOf(T, field), code(@FieldType(T, field)) });
        }
        text = text ++ std.fmt.comptimePrint("size:{d}:;", .{@sizeOf(T)});
    }
    return text;
}

/// A type in NumPy's notation.
fn code(comptime T: type) []const u8 {
    return switch (@typeInfo(T)) {
        .int => |int| (if (int.signedness == .signed) "i" else "u") ++ std.fmt.comptimePrint("{d}", .{@sizeOf(T)}),
        .@"enum" => |e| code(e.tag_type),
        .array => |array| std.fmt.comptimePrint("{d}*", .{array.len}) ++ code(array.child),
        .pointer, .optional => "u8",
        .@"struct" => std.fmt.comptimePrint("{d}*i8", .{@sizeOf(T) / 8}),
        else => @compileError("no code for " ++ @typeName(T)),
    };
}
