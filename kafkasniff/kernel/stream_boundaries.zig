//! Finding frames in a stream whose boundaries are unknown, and ruling out Kafka.
//!
//! Needed if a capture starts in the middle of a connection, after a gap that contained a boundary, and for a connection
//! without a verdict. A `Search` follows the candidates in the stream's bytes: positions that could be a frame's start,
//! with the chain of frames that begins there. One is accepted
//!
//! - as requests: if a frame of the chain decodes exactly, or, if the stream is known to be the client's, MIN_CHAIN frames
//!   have plausible request headers (responses with small correlation ids look like Produce requests);
//! - as responses: if a frame of the chain answers an outstanding request, and decodes exactly as that API and version, or
//!   if RESPONSE_CHAIN frames have rising correlation ids;
//! - as both: if a plausible request is followed by a response with its correlation id that decodes exactly as its API and
//!   version.
//!
//! A candidate is dropped when a frame of its chain is implausible. The search processes the stream segment by segment, so
//! its result does not depend on the batching of packets. Python judges the bytes of single frames (`Question`).

const Connection = @import("stream_connection.zig").Connection;
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const std = @import("std");
const Stream = @import("stream_kafka.zig").Stream;
const types = @import("stream_types.zig");

const MIN_CHAIN = 2;
const RESPONSE_CHAIN = 3;
/// Correlation ids of consecutive responses rise by less than this: by 1, or by more if requests had acks 0.
const MAX_RISE = 1000;
/// Size of a request with an unknown API that a search waits for.
const MAX_FORM = 1 << 20;
/// Size of a plausible request that is examined together with a response: odd requests are small.
const MAX_ODD = 64 << 10;
/// Size of that response: Metadata of thousands of topics is smaller.
const MAX_ANSWER = 1 << 20;
/// A stream without a candidate in this many bytes is not Kafka: four times the largest request that clients send by
/// default (max.request.size), since a capture may start anywhere in one.
const SEARCH_LIMIT = 4 << 20;
/// Services that speak first say less than this before their client speaks.
const MAX_GREETING = 4096;
const MAX_CANDIDATES = 64;
/// Bytes that are scanned for responses at once, so that a frame that is found early does not cost a scan of all the
/// following bytes: a segment may hold hundreds of places where frames begin and end again.
const CHUNK = 4096;
/// Bytes of a request that a scan checks: size, API key and version, correlation id, length of the client id.
const REQUEST_HEAD = 14;
/// Bytes of a response: size, correlation id.
const RESPONSE_HEAD = 8;
/// A correlation id and an error code: Heartbeat v0.
const SMALLEST_RESPONSE = 6;
/// Bytes of an incomplete request that are examined.
const BEGINNING = 256;
/// Bytes of a frame up to the correlation id of a request.
const SHORTEST_HEADER = 12;
/// Maximum size of a PROXY protocol header.
const MAX_PROLOGUE = 536;
/// Bytes by which other protocols are named.
const NAMED = 16;

/// A possible frame start and how far its chain of frames was followed. Positions are counted like `Stream.base`.
const Candidate = struct {
    start: i64,
    at: i64,
    /// For a chain of requests: where the bytes end that must be available before it can be followed further.
    needed: i64 = 0,
    frames: u32 = 0,
    correlation: i32 = -1,
    /// The first frame of a chain of responses that answers a request.
    expected: ?i64 = null,
    /// For a chain of responses: its first frame has the id of a request that it does not answer.
    refuted: bool = false,

    fn of(start: i64) Candidate {
        return .{ .start = start, .at = start };
    }

    fn restart(one: *Candidate) void {
        one.at = one.start;
        one.frames = 0;
        one.correlation = -1;
        one.expected = null;
    }
};
const Candidates = std.ArrayList(Candidate);

/// The search in the bytes that a stream collects.
pub const Search = struct {
    requests: Candidates = .empty,
    responses: Candidates = .empty,
    /// Progress of each scan for candidates.
    scanned_requests: i64 = 0,
    scanned_responses: i64 = 0,
    /// The last accepted chain was one of requests.
    accepted_requests: bool = false,
    /// It is known whether the stream begins with a PROXY protocol header; its length.
    proxied: bool = false,
    prologue: i64 = 0,
    /// The first segment is incomplete: its beginning was dropped.
    clipped: bool = false,

    pub fn free(search: *Search, e: *Engine) void {
        search.requests.clearAndFree(e.gpa);
        search.responses.clearAndFree(e.gpa);
        search.* = .{};
    }

    pub fn held(search: *const Search) u64 {
        return (search.requests.capacity + search.responses.capacity) * @sizeOf(Candidate);
    }

    /// A segment begins at this position.
    pub fn add(search: *Search, e: *Engine, stream: *const Stream, forced: bool, at: i64) void {
        if (stream.aligned) {
            if (at == search.prologue) search.begin(e);
            return;
        }
        addTo(e, &search.responses, at);
        if (forced) addTo(e, &search.requests, at);
    }

    fn addTo(e: *Engine, list: *Candidates, at: i64) void {
        if (list.items.len < MAX_CANDIDATES) list.append(e.gpa, .of(at)) catch exhausted();
    }

    /// The stream begins here.
    fn begin(search: *Search, e: *Engine) void {
        for ([_]*Candidates{ &search.requests, &search.responses }) |list| {
            list.clearRetainingCapacity();
            list.append(e.gpa, .of(search.prologue)) catch exhausted();
        }
    }

    /// The bytes before this position were dropped.
    pub fn keepFrom(search: *Search, base: i64) void {
        search.scanned_requests = @max(search.scanned_requests, base);
        search.scanned_responses = @max(search.scanned_responses, base);
        for ([_]*Candidates{ &search.requests, &search.responses }) |list| {
            var kept: usize = 0;
            for (list.items) |one| if (one.start >= base) {
                list.items[kept] = one;
                kept += 1;
            };
            list.shrinkRetainingCapacity(kept);
        }
    }

    /// Drops these candidates, by their places.
    fn remove(list: *Candidates, gone: *const [MAX_CANDIDATES]bool) void {
        var kept: usize = 0;
        for (list.items, 0..) |one, i| if (!gone[i]) {
            list.items[kept] = one;
            kept += 1;
        };
        list.shrinkRetainingCapacity(kept);
    }
};

/// A stream in search, with what is known of its connection.
const View = struct {
    e: *Engine,
    c: *Connection,
    d: usize,
    stream: *Stream,
    search: *Search,
    bytes: []const u8,
    base: i64,
    end: i64,

    fn of(e: *Engine, c: *Connection, d: usize) View {
        const stream = &c.kafka.talk.?.streams[d];
        const bytes = stream.bytes.items();
        return .{
            .e = e,
            .c = c,
            .d = d,
            .stream = stream,
            .search = &stream.search,
            .bytes = bytes,
            .base = stream.base,
            .end = stream.base + @as(i64, @intCast(bytes.len)),
        };
    }

    fn mayAsk(v: *const View) bool {
        return v.c.kafka.client < 0 or v.c.kafka.client == v.d;
    }

    fn mayAnswer(v: *const View) bool {
        return v.c.kafka.client != v.d;
    }

    fn from(v: *const View, at: i64) []const u8 {
        return v.bytes[@intCast(at - v.base)..];
    }

    fn between(v: *const View, start: i64, end: i64) []const u8 {
        return v.bytes[@intCast(start - v.base)..@intCast(end - v.base)];
    }

    fn int(v: *const View, at: i64) i32 {
        return std.mem.readInt(i32, v.from(at)[0..4], .big);
    }

    fn isSize(v: *const View, size: i64, least: i64) bool {
        return size >= least and size <= v.e.max_frame;
    }

    /// Order of the packet that brought the byte at a position.
    fn orderAt(v: *const View, at: i64) i64 {
        const pieces = v.stream.pieces.items();
        return pieces[std.sort.partitionPoint(types.Piece, pieces, at + 1, endsBefore)].order;
    }

    fn startsSegment(v: *const View, at: i64) bool {
        if (at == v.base) return !v.search.clipped;
        const pieces = v.stream.pieces.items();
        const place = std.sort.partitionPoint(types.Piece, pieces, at, endsBefore);
        return place < pieces.len and pieces[place].end == at;
    }

    fn endsBefore(end: i64, piece: types.Piece) bool {
        return piece.end < end;
    }

    fn ask(v: *const View, kind: types.Question, bytes: []const u8, a: i64, b: i64, c: i64) types.Answer {
        var q = v.e.question(v.c, kind, v.d);
        q.data = @intFromPtr(bytes.ptr);
        q.size = bytes.len;
        q.a = a;
        q.b = b;
        q.c = c;
        return v.e.ask(&q);
    }
};

/// Places of candidates in the order of their positions.
const Order = struct {
    places: [MAX_CANDIDATES]u8 = undefined,
    count: usize,

    fn of(list: *const Candidates) Order {
        var order = Order{ .count = list.items.len };
        for (order.places[0..order.count], 0..) |*place, i| place.* = @intCast(i);
        std.mem.sort(u8, order.places[0..order.count], list.items, startsBefore);
        return order;
    }

    fn startsBefore(items: []const Candidate, a: u8, b: u8) bool {
        return items[a].start < items[b].start;
    }
};

/// Position of the first frame among the bytes of a stream; null if unknown yet.
pub fn find(e: *Engine, c: *Connection, d: usize) ?i64 {
    const v = View.of(e, c, d);
    const client = c.kafka.client;
    const forced = c.kafka.forced;
    if (c.kafka.verdict == .kafka and v.stream.aligned) return v.base;
    if (v.mayAsk()) {
        const chain: ?u32 = if (client < 0) null else if (forced) 1 else MIN_CHAIN;
        if (findRequest(&v, chain)) |start| return start;
    }
    if (!v.mayAnswer()) return null;
    // Within a stream, a single response is too little evidence even from a known broker.
    const chain: u32 = if (!forced) RESPONSE_CHAIN else if (v.stream.aligned) 1 else MIN_CHAIN;
    return findResponse(&v, chain);
}

// -- requests -------------------------------------------------------------------------------------------------------------

/// Position of the first frame of an accepted chain of requests. `chain`: how many plausible ones suffice; null: one must
/// decode exactly.
fn findRequest(v: *const View, chain: ?u32) ?i64 {
    const list = &v.search.requests;
    if (!v.stream.aligned) scanForRequests(v);
    if (v.c.kafka.forced) std.mem.sort(Candidate, list.items, {}, startsFirst);
    var gone: [MAX_CANDIDATES]bool = @splat(false);
    defer Search.remove(list, &gone);
    var found = false;
    for (list.items, 0..) |*one, i| {
        const accepted = followRequests(v, one, chain) orelse continue;
        if (!accepted) {
            gone[i] = true;
        } else if (!found) {
            found = true;
            if (waitsForEarlier(v, one.start, &gone)) continue;
            v.search.accepted_requests = true;
            return one.start;
        }
    }
    return null;
}

fn startsFirst(_: void, a: Candidate, b: Candidate) bool {
    return a.start < b.start;
}

/// Whether a candidate at a segment's start, whose frame is still growing, may contain this one as payload.
fn waitsForEarlier(v: *const View, found: i64, gone: *const [MAX_CANDIDATES]bool) bool {
    for (v.search.requests.items, 0..) |one, i| {
        if (gone[i] or one.start >= found) continue;
        const end = if (v.end - one.at < 4) one.at else one.at + 4 + v.int(one.at);
        if (end > found and v.startsSegment(one.start)) return true;
    }
    return false;
}

/// True: accepted; false: implausible; null: more bytes are needed.
fn followRequests(v: *const View, one: *Candidate, chain: ?u32) ?bool {
    if (v.end < one.needed) return null;
    const forced, const aligned = .{ v.c.kafka.forced, v.stream.aligned };
    while (v.end - one.at >= 4) {
        const size: i64 = v.int(one.at);
        if (!v.isSize(size, 8)) return false;
        const has_form = @intFromBool(forced and (aligned or size <= MAX_FORM));
        const start = one.at + 4;
        const end = start + size;
        if (end > v.end) {
            const head = v.between(start, @min(start + BEGINNING, v.end));
            if (v.ask(.begins_request, head, size, @intFromBool(aligned), has_form) != .enter) return false;
            if (head.len == BEGINNING) one.needed = end;
            return null;
        }
        const frame = v.between(start, end);
        if (aligned and one.frames == 0 and isGssapi(frame)) return true;
        const answer = v.ask(.judge_request, frame, @intFromBool(!aligned), @intFromBool(aligned), has_form);
        if (answer == .nothing) return false;
        one.frames +|= 1;
        one.at = end;
        if (answer == .enter or (chain != null and one.frames >= chain.?)) return true;
    }
    return null;
}

/// Adds the positions not scanned yet whose first bytes look like a request's.
fn scanForRequests(v: *const View) void {
    const search = v.search;
    const limit = v.end - REQUEST_HEAD;
    if (limit < search.scanned_requests or search.requests.items.len >= MAX_CANDIDATES) return;
    const versions = v.e.highestVersions(v.c);
    var at = search.scanned_requests;
    while (at <= limit and search.requests.items.len < MAX_CANDIDATES) : (at += 1) {
        const head = v.from(at)[0..REQUEST_HEAD];
        const size: i64 = std.mem.readInt(u32, head[0..4], .big);
        if (!v.isSize(size, 8)) continue;
        const key = std.mem.readInt(u16, head[4..6], .big);
        if (key >= versions.len or std.mem.readInt(u16, head[6..8], .big) > versions[key]) continue;
        const client_id = std.mem.readInt(u16, head[12..14], .big);
        if (client_id == 0xFFFF or @as(i64, client_id) + 10 <= size) search.requests.append(v.e.gpa, .of(at)) catch exhausted();
    }
    search.scanned_requests = limit + 1;
}

// -- responses ------------------------------------------------------------------------------------------------------------

/// Position of the first frame of an accepted chain of responses; `chain`: how many with rising ids suffice.
fn findResponse(v: *const View, chain: u32) ?i64 {
    if (!v.stream.aligned) {
        const limit = v.end - RESPONSE_HEAD;
        while (limit - v.search.scanned_responses >= CHUNK) {
            scanForResponses(v);
            if (firstResponse(v, chain, v.search.scanned_responses)) |start| return start;
        }
        if (limit >= v.search.scanned_responses) scanForResponses(v);
    }
    return firstResponse(v, chain, v.end);
}

/// The same among the candidates before `stop`.
fn firstResponse(v: *const View, chain: u32, stop: i64) ?i64 {
    const list = &v.search.responses;
    const order = Order.of(list);
    var gone: [MAX_CANDIDATES]bool = @splat(false);
    defer Search.remove(list, &gone);
    for (order.places[0..order.count]) |place| {
        const one = &list.items[place];
        if (one.start >= stop) break;
        const accepted = followResponses(v, one, chain) orelse continue;
        if (accepted) {
            v.search.accepted_requests = false;
            return one.start;
        }
        gone[place] = true;
    }
    return null;
}

fn followResponses(v: *const View, one: *Candidate, chain: u32) ?bool {
    const dialogue = &v.c.kafka.talk.?.dialogue;
    while (v.end - one.at >= RESPONSE_HEAD) {
        const size: i64 = v.int(one.at);
        const id = v.int(one.at + 4);
        if (!v.isSize(size, SMALLEST_RESPONSE)) return false;
        const asked = dialogue.ledger.oldest(id);
        const rise = @as(i64, id) - one.correlation;
        if (asked == null and ((one.frames != 0 and !(rise > 0 and rise < MAX_RISE)) or !dialogue.mayBeNext(id))) return false;
        const end = one.at + 4 + size;
        if (end > v.end) return null;
        if (asked != null and one.expected == null) one.expected = one.at;
        one.frames +|= 1;
        // If the user says that this is Kafka, frames that begin and end with segments are responses.
        const said = v.c.kafka.forced and v.startsSegment(one.start) and v.startsSegment(end);
        if (said or one.frames >= chain or (asked != null and
            v.ask(.exact_response, v.between(one.at + 4, end), asked.?.key, asked.?.version, 0) == .enter))
        {
            // Frames before the first one that answers a request may be the end of a longer one: a field of bytes there
            // has a length prefix too, and ends where the frame does.
            if (!said) one.start = one.expected orelse one.start;
            return true;
        }
        one.correlation = id;
        one.at = end;
    }
    return if (v.end - one.at >= 4 and !v.isSize(v.int(one.at), SMALLEST_RESPONSE)) false else null;
}

/// Adds those in the next bytes that are not scanned yet: a response that starts within a segment, only if its correlation
/// id is outstanding.
fn scanForResponses(v: *const View) void {
    const search = v.search;
    const ledger = &v.c.kafka.talk.?.dialogue.ledger;
    const first = search.scanned_responses;
    const stop = @min(first + CHUNK, v.end - RESPONSE_HEAD + 1);
    const known = search.responses.items.len;
    var at = first;
    while (at < stop and search.responses.items.len < MAX_CANDIDATES) : (at += 1) {
        const head = v.from(at)[0..RESPONSE_HEAD];
        if (!v.isSize(std.mem.readInt(u32, head[0..4], .big), SMALLEST_RESPONSE)) continue;
        if (ledger.oldest(std.mem.readInt(i32, head[4..8], .big)) == null) continue;
        for (search.responses.items[0..known]) |one| {
            if (one.start == at) break;
        } else search.responses.append(v.e.gpa, .of(at)) catch exhausted();
    }
    search.scanned_responses = stop;
}

/// Restarts chains of responses that begin after the packet of this order: now the requests are known.
pub fn restartResponses(stream: *Stream, order: i64) void {
    const pieces = stream.pieces.items();
    var first = stream.base;
    for (pieces) |piece| {
        if (piece.order > order) break;
        first = @max(piece.end, first);
    }
    for (stream.search.responses.items) |*one| if (one.start >= first) one.restart();
    stream.search.scanned_responses = @min(stream.search.scanned_responses, first);
}

/// At the stream's end: where frames start that begin with a segment, end with the stream, and fit a request.
pub fn findLastResponse(e: *Engine, c: *Connection, d: usize) ?i64 {
    const v = View.of(e, c, d);
    const list = &v.search.responses;
    const order = Order.of(list);
    for (order.places[0..order.count]) |place| {
        const one = &list.items[place];
        if (one.at == v.end and one.expected != null and v.startsSegment(one.start)) {
            v.search.accepted_requests = false;
            return one.expected;
        }
    }
    return null;
}

// -- both -----------------------------------------------------------------------------------------------------------------

pub const Place = struct { d: usize, at: i64 };

/// A plausible request and its response, each in a stream that is not in step: where the first begins.
///
/// A request with an oddity, such as the surplus bytes of librdkafka's Metadata, is too little evidence alone.
pub fn findExchange(e: *Engine, c: *Connection) ?Place {
    for (0..2) |d| {
        const asked = View.of(e, c, d);
        if (!asked.mayAsk()) continue;
        const start = findAnswer(&asked, &View.of(e, c, 1 - d)) orelse continue;
        asked.search.accepted_requests = true;
        return .{ .d = d, .at = start };
    }
    return null;
}

/// Where the request begins that an exactly decoded whole frame, after it, answers.
fn findAnswer(asked: *const View, v: *const View) ?i64 {
    for (v.search.responses.items) |*one| {
        if (one.refuted or v.end - one.start < RESPONSE_HEAD) continue;
        const size: i64 = v.int(one.start);
        const end = one.start + 4 + size;
        if (size < 4 or size > MAX_ANSWER or end > v.end) continue;
        const start = wholeRequest(asked, v.int(one.start + 4)) orelse continue;
        const request_end = start + 4 + asked.int(start);
        if (v.orderAt(one.start) < asked.orderAt(request_end - 1)) continue;
        const request = asked.between(start + 4, request_end);
        if (v.ask(.answers, v.between(one.start + 4, end), @bitCast(@as(u64, @intFromPtr(request.ptr))), @intCast(request.len), 0) == .enter) return start;
        one.refuted = true;
    }
    return null;
}

/// Where a complete plausible request with this id begins, the first of its chain. Among several it is the last.
fn wholeRequest(v: *const View, id: i32) ?i64 {
    var found: ?i64 = null;
    for (v.search.requests.items) |one| {
        if (one.frames == 0 or v.int(one.start) > MAX_ODD) continue;
        if (v.int(one.start + 8) == id) found = one.start;
    }
    return found;
}

// -- beginnings -----------------------------------------------------------------------------------------------------------

/// Removes a PROXY protocol header from the front of the client's stream. False: nothing follows it so far.
pub fn takePrologue(e: *Engine, c: *Connection, d: usize) bool {
    const v = View.of(e, c, d);
    const search = v.search;
    if (search.proxied or !v.stream.aligned or !v.mayAsk()) return true;
    if (v.bytes[0] == 'P' or v.bytes[0] == '\r') {
        var q = e.question(c, .prologue, d);
        q.data = @intFromPtr(v.bytes.ptr);
        q.size = @min(v.bytes.len, MAX_PROLOGUE);
        if (e.ask(&q) != .enter) return false;
        search.prologue = @max(@min(q.out_count, @as(i64, @intCast(q.size))), 0);
        if (search.prologue != 0) e.textProblem(c, d, c.kafka.log, q.out_text - 1, search.prologue);
    }
    search.proxied = true;
    if (search.prologue != 0) {
        v.stream.keepFrom(search.prologue);
        if (v.stream.bytes.len() == 0) return false;
        search.begin(e);
    }
    return true;
}

/// Whether the bytes of a stream before a gap begin like a frame.
///
/// A response is hard to recognize: in mid-stream it is tried only if segments are truncated, so that none will be whole,
/// and only if it ends where its segment did; at its stream's beginning it waits for the verdict.
pub fn beginsFrame(e: *Engine, c: *Connection, d: usize, missing: types.Gap) bool {
    const v = View.of(e, c, d);
    const least: usize = if (v.mayAsk()) SHORTEST_HEADER else RESPONSE_HEAD;
    if (v.bytes.len < least or !(missing.snapped or v.stream.aligned)) return false;
    const size: i64 = v.int(v.base);
    if (!v.isSize(size, 4)) return false;
    if (v.mayAsk()) return v.ask(.begins_header, v.bytes[4..SHORTEST_HEADER], 0, 0, 0) == .enter;
    if (c.kafka.verdict != .kafka) return v.stream.aligned;
    if (!missing.snapped or @as(i64, @intCast(v.bytes.len)) + missing.size != 4 + size) return false;
    const asked = c.kafka.talk.?.dialogue.ledger.oldest(v.int(v.base + 4)) orelse return false;
    return v.ask(.begins_response, v.bytes[4..], asked.key, asked.version, 0) == .enter;
}

/// At least one whole frame with a plausible request header is at the stream's beginning.
pub fn began(stream: *const Stream) bool {
    if (!stream.aligned) return false;
    for (stream.search.requests.items) |one| if (one.frames != 0) return true;
    return false;
}

/// The first token of GSSAPI with Kerberos or SPNEGO (RFC 2743, 3.1; RFC 4121, 4.1).
fn isGssapi(bytes: []const u8) bool {
    const head = bytes[0..@min(bytes.len, 24)];
    if (head.len == 0 or head[0] != 0x60) return false;
    for ([_][]const u8{ "\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02", "\x06\x06\x2b\x06" }) |oid| {
        if (std.mem.indexOf(u8, head, oid) != null) return true;
    }
    return false;
}

/// What follows from a place where frames begin, before the verdict.
pub const Beginning = struct { client: i8, gssapi: bool };

pub fn beginning(e: *Engine, c: *Connection, found: Place) Beginning {
    const v = View.of(e, c, found.d);
    const d: i8 = @intCast(found.d);
    const client = if (c.kafka.client >= 0) c.kafka.client else if (v.search.accepted_requests) d else 1 - d;
    if (d == client) restartResponses(&c.kafka.talk.?.streams[1 - found.d], v.orderAt(found.at));
    const rest = v.from(found.at);
    return .{ .client = client, .gssapi = isGssapi(rest[@min(4, rest.len)..]) };
}

// -- no frames ------------------------------------------------------------------------------------------------------------

/// Drops the bytes of a stream in which no frame starts: those before the first candidate. A scan that lacks bytes for its
/// first step has no progress, and needs all of them.
pub fn forget(e: *Engine, c: *Connection, d: usize) void {
    const v = View.of(e, c, d);
    if (v.stream.aligned) return;
    var needed: i64 = std.math.maxInt(i64);
    if (v.mayAsk()) needed = @min(needed, v.search.scanned_requests);
    if (v.mayAnswer()) needed = @min(needed, v.search.scanned_responses);
    for ([_]*Candidates{ &v.search.requests, &v.search.responses }) |list| {
        for (list.items) |one| needed = @min(needed, one.start);
    }
    v.stream.keepFrom(needed);
}

/// The number of a text that says why the connection is not Kafka, judged by the stream of `d`; null if it may be.
///
/// The client's stream decides, if there is one: ids of responses need not rise. So the greeting of a service that speaks
/// first (SSH, SMTP, MySQL) waits for what its client says, until the connection is `over`.
pub fn reasonAgainst(e: *Engine, c: *Connection, d: usize, over: bool) ?i64 {
    const v = View.of(e, c, d);
    if (!isHopeless(&v)) return null;
    const other = View.of(e, c, 1 - d);
    const silent = other.end <= other.search.prologue and !other.stream.hole;
    if (silent and !over and !v.mayAsk() and v.end <= MAX_GREETING) return null;
    const alone = v.stream.aligned and v.mayAsk();
    if (!alone and (other.end > other.search.prologue or other.stream.hole) and !isHopeless(&other)) return null;
    var q = e.question(c, .against, d);
    q.data = @intFromPtr(v.bytes.ptr);
    q.size = @min(v.bytes.len, NAMED);
    q.a = @intFromBool(v.stream.aligned);
    _ = e.ask(&q);
    return q.out_text - 1;
}

fn isHopeless(v: *const View) bool {
    return !(v.mayAsk() and mayFind(v, &v.search.requests)) and !(v.mayAnswer() and mayFind(v, &v.search.responses));
}

/// Whether frames of these candidates may be found here.
fn mayFind(v: *const View, list: *const Candidates) bool {
    if (v.stream.aligned) return v.end <= v.search.prologue or list.items.len != 0;
    if (v.end <= SEARCH_LIMIT) return true;
    for (list.items) |one| if (one.frames != 0) return true;
    return false;
}
