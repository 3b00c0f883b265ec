//! The dialogue of a Kafka connection: classifies each frame, and pairs responses with requests.
//!
//! While correlation ids only rise and nothing is missing, the id identifies the request. Otherwise the body of a
//! response has to prove that it answers the request (`Question.fits`).

const Connection = @import("stream_connection.zig").Connection;
const EarlyResponses = @import("stream_early.zig").EarlyResponses;
const Engine = @import("streams.zig").Engine;
const exhausted = @import("stream_memory.zig").exhausted;
const Frame = @import("stream_frames.zig").Frame;
const kept_requests = @import("stream_kept.zig");
const ledgers = @import("stream_ledger.zig");
const links = @import("link.zig");
const requests_of = @import("stream_requests.zig");
const roles = @import("stream_roles.zig");
const std = @import("std");
const turns_of = @import("stream_turns.zig");
const types = @import("stream_types.zig");

const NONE = @import("stream_lists.zig").NONE;
const NO_TIME = types.NO_TIME;
const Pending = ledgers.Pending;

/// Outstanding responses have ids that differ by less than this from the last request's.
const NEAR = 10_000;
/// Highest plausible API key: Kafka has 95 after fifteen years.
const MAX_KEY = 1_000;
/// Names of mechanisms that a connection's tokens may have; RFC 4422 allows 20 characters.
const MAX_NAMES = 16;

/// Client ids of a connection that are reported; clients have one per connection, proxies more.
const MAX_CLIENT_IDS = 16;

/// From this version of the header on, a request may leave its client id to the connection's first one (KIP-1313).
const INHERITS = 3;

const SCRAM_ANSWERS = [_][]const u8{ "r=", "v=", "e=" };

const Mechanism = enum(u8) { other, plain, scram };

/// Raw SASL tokens: int32 size and token without a Kafka header.
///
/// Nothing on the wire marks the end: it is the first client frame with the header of a request, and with PLAIN and
/// SCRAM, whose clients send a known number of tokens, the one after those.
const Tokens = struct {
    mechanism: Mechanism = .other,
    client: u32 = 0,
    broker: u32 = 0,
    /// The client has sent a request: it sends no more tokens.
    over: bool = false,
};

/// Consecutive frames that are too short for a message, after the first one: a stream may consist of them.
const Short = struct { begun: bool = false, count: i64 = 0, size: i64 = 0, first_packet: i64 = 0 };

pub const Dialogue = struct {
    ledger: ledgers.Ledger = .{},
    early: EarlyResponses = .{},
    ordinal: i64 = 0,
    /// Correlation ids of the last request, and of the last response that was paired.
    last_id: ?i32 = null,
    last_answer: ?i32 = null,
    /// Two consecutive requests had different correlation ids: some clients use the same id for all.
    ids_vary: bool = false,
    /// Each request so far had a higher correlation id than the previous one: none is used twice.
    ids_rise: bool = true,
    /// Requests may be missing between those below this ordinal and those from it on; -1: none.
    requests_lost_before: i64 = -1,
    /// Responses may be in missing bytes.
    responses_lost: bool = false,
    /// Bytes of this connection are missing.
    gapped: bool = false,
    /// The capture lacks responses, and it is unknown which requests they answered.
    one_sided: bool = false,
    /// How much of the client's stream is available: nothing so far; less than the broker's; or all of it.
    requests: enum(u8) { none, behind, here } = .none,
    tokens: ?Tokens = null,
    /// 1 + the name's index of an unanswered handshake: tokens may follow if the answer was lost.
    offered: u8 = 0,
    names: std.ArrayList([]u8) = .empty,
    /// Retransmitted segments since the last exchange ended.
    retransmits: u32 = 0,
    turns: turns_of.Turns = .{},
    /// Requests and responses so far.
    asked: i64 = 0,
    answered: i64 = 0,
    /// The broker answered a request that it serves only after authentication.
    served: bool = false,
    /// An exchange is over.
    over: bool = false,
    /// The different client ids of requests, the first one first.
    client_ids: std.ArrayList([]u8) = .empty,
    /// It is known that the opening of the connection is over.
    opened: bool = false,
    /// By direction.
    short: [2]Short = @splat(.{}),

    pub fn loseRequests(dialogue: *Dialogue) void {
        dialogue.requests_lost_before = dialogue.ordinal;
    }

    /// Bytes are missing at the beginning of responses (`Ledger.gap`).
    pub fn loseResponses(dialogue: *Dialogue, e: *Engine, c: *Connection, resumed: i64, has_head: bool) void {
        dialogue.responses_lost = true;
        var lost = dialogue.ledger.gap(e.gpa, resumed, has_head);
        defer lost.deinit(e.gpa);
        for (lost.items) |*pending| dialogue.end(e, c, pending, .lost, 0, 0);
    }

    pub fn beginGssapi(dialogue: *Dialogue, e: *Engine, c: *Connection) void {
        dialogue.tokens = .{};
        e.put(c, .{ .kind = .sasl, .a = 1 });
    }

    fn beginTokens(dialogue: *Dialogue, e: *Engine, c: *Connection, name: u8) void {
        const text: []const u8 = if (name == 0) "" else dialogue.names.items[name - 1];
        dialogue.tokens = .{ .mechanism = mechanismOf(text) };
        e.put(c, .{ .kind = .sasl, .at = @intFromPtr(text.ptr), .size = @intCast(text.len) });
    }

    /// 1 + the index of a name; at the bound, that of an empty one.
    fn nameIndex(dialogue: *Dialogue, e: *Engine, text: []const u8) u8 {
        for (dialogue.names.items, 1..) |name, i| if (std.mem.eql(u8, name, text)) return @intCast(i);
        if (dialogue.names.items.len >= MAX_NAMES and text.len != 0) return dialogue.nameIndex(e, "");
        dialogue.names.append(e.gpa, e.gpa.dupe(u8, text) catch exhausted()) catch exhausted();
        return @intCast(dialogue.names.items.len);
    }

    fn nameClient(dialogue: *Dialogue, e: *Engine, c: *Connection, name: []const u8) void {
        for (dialogue.client_ids.items) |known| if (std.mem.eql(u8, known, name)) return;
        if (dialogue.client_ids.items.len == MAX_CLIENT_IDS) return;
        const own = e.gpa.dupe(u8, name) catch exhausted();
        dialogue.client_ids.append(e.gpa, own) catch exhausted();
        e.put(c, .{ .kind = .client, .at = @intFromPtr(own.ptr), .size = @intCast(own.len) });
    }

    pub fn isNear(dialogue: *const Dialogue, id: i32) bool {
        const last = dialogue.last_id orelse return true;
        return @abs(@as(i64, id) - last) < NEAR;
    }

    /// Whether this may be the id of the next response.
    pub fn mayBeNext(dialogue: *const Dialogue, id: i32) bool {
        return dialogue.isNear(id) and id > (dialogue.last_answer orelse return true);
    }

    // -- ends of exchanges --------------------------------------------------------------------------------------------

    fn end(
        dialogue: *Dialogue,
        e: *Engine,
        c: *Connection,
        pending: *const Pending,
        status: types.Status,
        flags: u16,
        since: i64,
    ) void {
        _ = kept_requests.giveBack(e, c, pending);
        dialogue.over = true;
        e.put(c, .{
            .kind = .ended,
            .muted = dialogue.turns.muted_until,
            .ordinal = pending.ordinal,
            .flags = flags,
            .retransmits = dialogue.retransmits,
            .a = @backingInt(status),
            .b = since,
        });
        dialogue.retransmits = 0;
        links.noteExchange(e, c, pending.ordinal, pending.time, dialogue.turns.muted_until, null);
    }

    /// The opening of the connection is over; regular messages do not show it.
    fn open(dialogue: *Dialogue, e: *Engine, c: *Connection) void {
        if (!dialogue.opened) e.put(c, .{ .kind = .unexpected });
        dialogue.opened = true;
    }

    /// Ends an exchange that needs no response.
    fn endSilent(dialogue: *Dialogue, e: *Engine, c: *Connection, pending: *const Pending) void {
        if (pending.regular) {
            const row = types.Row{
                .kind = .request,
                .key = pending.key,
                .version = pending.version,
                .correlation = pending.correlation,
                .ordinal = pending.ordinal,
                .retransmits = dialogue.retransmits,
                .time = c.kafka.log.time,
                .first_time = c.kafka.log.time,
                .packet = c.kafka.log.packet,
            };
            if (e.putRegular(c, &row, .{ .ended = true }, -1, null) != null) {
                _ = kept_requests.giveBack(e, c, pending);
                dialogue.over = true;
                dialogue.retransmits = 0;
                links.noteExchange(e, c, pending.ordinal, pending.time, dialogue.turns.muted_until, null);
                return;
            }
        }
        dialogue.end(e, c, pending, .no_response, 0, 0);
    }

    /// Ends what is open at the end of the connection. `left`: when the broker closed its side, if it did.
    pub fn close(dialogue: *Dialogue, e: *Engine, c: *Connection, reason: types.Reason, left: i64) void {
        while (dialogue.early.pop(e.gpa)) |frame| dialogue.giveUp(e, c, frame);
        for (0..2) |d| dialogue.endShort(e, c, d);
        var silent = false;
        while (dialogue.ledger.drain(e.gpa, &silent)) |*pending| {
            const after = elapsed(left, pending.first_time);
            if (silent) {
                dialogue.end(e, c, pending, .no_response, 0, 0);
            } else if (pending.lost) {
                dialogue.end(e, c, pending, .lost, 0, 0);
            } else if (after != NO_TIME and after > 0) {
                dialogue.end(e, c, pending, .unanswered, 0, after);
            } else if (dialogue.one_sided) {
                dialogue.end(e, c, pending, .lost, types.UNREPORTED, 0);
            } else dialogue.end(e, c, pending, if (reason == .end) .open else .unanswered, 0, 0);
        }
    }

    pub fn free(dialogue: *Dialogue, e: *Engine) void {
        dialogue.ledger.free(e);
        dialogue.early.free(e.gpa);
        for (dialogue.names.items) |name| e.retire(name);
        dialogue.names.clearAndFree(e.gpa);
        for (dialogue.client_ids.items) |name| e.retire(name);
        dialogue.client_ids.clearAndFree(e.gpa);
    }

    // -- responses that wait for their requests -----------------------------------------------------------------------

    fn addEarly(dialogue: *Dialogue, e: *Engine, c: *Connection, id: i32, frame: *const Frame) void {
        var kept = frame.*;
        kept.data = e.gpa.dupe(u8, frame.data) catch exhausted();
        dialogue.early.add(e.gpa, id, kept);
        while (dialogue.early.excess(e.gpa)) |one| dialogue.giveUp(e, c, one);
    }

    /// The request of this response will not arrive.
    fn giveUp(dialogue: *Dialogue, e: *Engine, c: *Connection, frame: Frame) void {
        dialogue.orphan(e, c, &frame);
        e.retire(@constCast(frame.data));
    }

    /// The response at this place does not answer the request with its id. It may answer a later one, so it keeps its
    /// place; the second time it is removed. Ids restart once, after authentication.
    fn refuseEarly(dialogue: *Dialogue, e: *Engine, c: *Connection, place: u32) void {
        while (dialogue.early.earlierOfId(e.gpa, place)) |one| dialogue.giveUp(e, c, one);
        const found = dialogue.early.at(place);
        if (found.refused) dialogue.giveUp(e, c, dialogue.early.remove(e.gpa, place)) else found.refused = true;
    }

    /// A response found its request: those that waited before it will not find theirs.
    fn passEarly(dialogue: *Dialogue, e: *Engine, c: *Connection, place: ?u32) void {
        if (place) |found| {
            while (dialogue.early.earlier(e.gpa, found)) |one| dialogue.giveUp(e, c, one);
            e.retire(@constCast(dialogue.early.remove(e.gpa, found).data));
        } else while (dialogue.early.pop(e.gpa)) |one| dialogue.giveUp(e, c, one);
    }

    // -- evidence besides the id, where bytes are missing ---------------------------------------------------------------

    /// Whether the response to a request may be lost, and a later request that is not available have the same id.
    fn mayRepeat(dialogue: *const Dialogue, pending: *const Pending) bool {
        return dialogue.responses_lost and
            (dialogue.requests == .behind or pending.ordinal < dialogue.requests_lost_before);
    }

    /// Whether only its id suggests that a response answers a request.
    fn isUnproven(dialogue: *const Dialogue, e: *Engine, c: *Connection, pending: *const Pending, frame: *const Frame) bool {
        // The beginning of a message fits many others.
        if (frame.cut() and (dialogue.mayRepeat(pending) or
            (precedes(frame, pending) and (dialogue.requests_lost_before >= 0 or !dialogue.ids_rise)))) return true;
        return !e.askBytes(c, .fits, frame.data, pending.key, pending.version, frame.cut());
    }

    /// Whether a response answers a request in missing bytes that had the same id as the outstanding one.
    fn isStale(dialogue: *const Dialogue, e: *Engine, c: *Connection, id: i32, frame: *const Frame) bool {
        const pending = dialogue.ledger.oldest(id) orelse return false;
        if (!precedes(frame, pending)) return false;
        if (!dialogue.ids_vary or dialogue.ledger.hasSameId(id)) return true;
        return dialogue.isUnproven(e, c, pending, frame);
    }

    // -- frames ---------------------------------------------------------------------------------------------------------

    /// A frame that is too short for a message: the first one of a run is reported, the others with its end.
    fn tooShort(dialogue: *Dialogue, e: *Engine, c: *Connection, frame: *const Frame, is_request: bool) void {
        const run = &dialogue.short[frame.dir];
        if (!is_request) dialogue.responses_lost = true;
        if (!run.begun) {
            run.begun = true;
            return unreadable(e, c, frame, .too_short);
        }
        if (run.count == 0) run.first_packet = frame.first_packet;
        run.count += 1;
        run.size += uncount(e, c, frame);
    }

    fn endShort(dialogue: *Dialogue, e: *Engine, c: *Connection, d: usize) void {
        const run = dialogue.short[d];
        dialogue.short[d] = .{};
        if (run.count != 0) e.put(c, .{
            .kind = .unreadable,
            .direction = @intCast(d),
            .a = @backingInt(types.Unreadable.too_short),
            .b = run.count,
            .size = std.math.lossyCast(u32, run.size),
            .first_packet = run.first_packet,
        });
    }

    fn orphan(dialogue: *Dialogue, e: *Engine, c: *Connection, frame: *const Frame) void {
        if (frame.data.len < 4) return unreadable(e, c, frame, .too_short);
        const id = std.mem.readInt(i32, frame.data[0..4], .big);
        if (!dialogue.isNear(id) or startsWithAny(frame.data, &SCRAM_ANSWERS)) {
            return unreadable(e, c, frame, .not_response);
        }
        var row = rowOf(frame, .response);
        row.correlation = id;
        row.ordinal = dialogue.ordinal;
        row.flags = types.ORPHAN;
        dialogue.answered += 1;
        dialogue.over = true;
        dialogue.turns.answered = @max(dialogue.turns.answered, frame.time);
        links.noteExchange(e, c, row.ordinal, frame.time, dialogue.turns.muted_until, null);
        row.retransmits = dialogue.retransmits;
        dialogue.retransmits = 0;
        dialogue.ordinal += 1;
        e.put(c, row);
    }

    fn request(dialogue: *Dialogue, e: *Engine, c: *Connection, frame: *const Frame) void {
        const bytes = frame.data;
        var row = rowOf(frame, .request);
        if (bytes.len < types.LEAST[1]) {
            dialogue.loseRequests();
            return unreadable(e, c, frame, .truncated);
        }
        row.key = std.mem.readInt(i16, bytes[0..2], .big);
        row.version = std.mem.readInt(i16, bytes[2..4], .big);
        row.correlation = std.mem.readInt(i32, bytes[4..8], .big);
        const facts = e.factsOf(c, row.key, row.version);
        if (!facts.traits.known and !(0 <= row.key and row.key <= MAX_KEY)) return unreadable(e, c, frame, .not_request);
        const found = requests_of.read(bytes, facts.traits.header);
        const asked: roles.Found = if (found.body == 0) .{} else roles.read(facts.request, bytes, found.body, false);
        row.body = @intCast(found.body);
        row.ordinal = dialogue.ordinal;
        if (asked.silent) row.flags |= types.SILENT;
        if (dialogue.over) row.flags |= types.LATE;
        dialogue.ordinal += 1;
        dialogue.asked += 1;
        if (found.client_id >= 0) {
            dialogue.nameClient(e, c, bytes[10..][0..@intCast(found.client_id)]);
        } else if (facts.traits.header >= INHERITS and found.body != 0 and dialogue.client_ids.items.len != 0) {
            const name = dialogue.client_ids.items[0];
            row.a = @bitCast(@intFromPtr(name.ptr));
            row.b = @as(i64, @intCast(name.len)) + 1;
        }
        const message = if (facts.traits.usual and found.body != 0 and !found.tagged)
            e.putRegular(c, &row, .{ .request = true, .silent = asked.silent }, found.client_id, null)
        else
            null;
        if (message == null) {
            e.put(c, row);
        } else if (asked.silent and (dialogue.last_answer != null or (dialogue.tokens != null and dialogue.tokens.?.broker != 0))) {
            // The client continued to produce: a broker that closes now refuses a batch, not the client.
            dialogue.open(e, c);
        }
        const repeats = dialogue.last_id != null and dialogue.last_id.? == row.correlation;
        if (dialogue.last_id) |last| {
            if (!repeats) dialogue.ids_vary = true;
            if (row.correlation <= last) dialogue.ids_rise = false;
        }
        dialogue.last_id = row.correlation;
        var pending = Pending{
            .ordinal = row.ordinal,
            .first_time = frame.first_time,
            .time = frame.time,
            .correlation = row.correlation,
            .key = row.key,
            .version = row.version,
            .regular = message != null,
            .message = message orelse NONE,
            .call = e.calls,
        };
        if (asked.mechanism) |name| {
            pending.mechanism = dialogue.nameIndex(e, name);
            dialogue.offered = pending.mechanism;
        }
        if (dialogue.early.count() != 0) {
            // If bytes are missing and ids may all be the same, earlier responses may answer another request.
            const sure = !dialogue.gapped or (dialogue.ids_vary and !repeats);
            if (dialogue.early.find(row.correlation, pending.time, sure)) |place| {
                const answer = dialogue.early.at(place).frame;
                return dialogue.pair(e, c, &pending, &answer, 0, place);
            }
        }
        if (asked.silent) {
            dialogue.ledger.silent.push(e.gpa, pending);
            if (dialogue.ledger.silent.len() > ledgers.MAX_SILENT) {
                dialogue.endSilent(e, c, &dialogue.ledger.silent.pop());
            }
            return;
        }
        const bound = dialogue.ledger.add(e.gpa, pending);
        if (message) |index| e.messages.items[index].latency = dialogue.ledger.open.last;
        const leaver = bound orelse return;
        // Without any response so far the capture may lack them all, which is known at the connection's end.
        const lost = leaver.lost or dialogue.last_answer == null;
        const flags: u16 = if (leaver.lost or !lost) 0 else types.UNREPORTED;
        dialogue.end(e, c, &leaver, if (lost) .lost else .unanswered, flags, 0);
    }

    fn response(dialogue: *Dialogue, e: *Engine, c: *Connection, frame: *const Frame) void {
        if (frame.data.len < 4) {
            dialogue.responses_lost = true;
            return dialogue.orphan(e, c, frame);
        }
        const id = std.mem.readInt(i32, frame.data[0..4], .big);
        var flags: u16 = 0;
        var pending: Pending = undefined;
        const stale = dialogue.gapped and dialogue.isStale(e, c, id, frame);
        if (if (stale) null else dialogue.ledger.answer(e.gpa, id)) |answered| {
            pending = answered.pending;
            if (answered.passes) {
                while (dialogue.ledger.olderLost(e.gpa, pending.ordinal)) |*lost| {
                    dialogue.end(e, c, lost, .lost, 0, 0);
                }
                if (dialogue.ledger.passOver(pending.ordinal)) flags = types.OUT_OF_ORDER;
            }
        } else {
            pending = dialogue.ledger.answerSilent(id) orelse {
                if (dialogue.requests == .none) return dialogue.orphan(e, c, frame);
                e.put(c, .{ .kind = .unexpected });
                return dialogue.addEarly(e, c, id, frame);
            };
            flags = types.ANSWERS_SILENT;
        }
        const silent = &dialogue.ledger.silent;
        while (silent.len() != 0 and silent.items()[0].ordinal < pending.ordinal) {
            dialogue.endSilent(e, c, &silent.pop());
        }
        dialogue.pair(e, c, &pending, frame, flags, null);
    }

    /// Pairs a response with its request; `early`: its place if it was among the waiting ones.
    fn pair(
        dialogue: *Dialogue,
        e: *Engine,
        c: *Connection,
        pending: *const Pending,
        frame: *const Frame,
        flags: u16,
        early: ?u32,
    ) void {
        if (dialogue.gapped) {
            const repeats = !dialogue.ids_rise or dialogue.mayRepeat(pending) or precedes(frame, pending);
            if (repeats and dialogue.isUnproven(e, c, pending, frame)) {
                // Ids repeat on some connections: the same id need not be the same exchange.
                dialogue.leaveUnpaired(e, c, frame, early);
                return dialogue.end(e, c, pending, .lost, 0, 0);
            }
        }
        const asked = kept_requests.giveBack(e, c, pending);
        dialogue.passEarly(e, c, early);
        dialogue.last_answer = pending.correlation;
        var row = rowOf(frame, .response);
        row.flags = flags;
        row.correlation = pending.correlation;
        row.key = pending.key;
        row.version = pending.version;
        row.ordinal = pending.ordinal;
        row.body = 4;
        row.latency = elapsed(pending.time, frame.first_time);
        row.duration = elapsed(pending.first_time, frame.time);
        row.retransmits = dialogue.retransmits;
        dialogue.retransmits = 0;
        dialogue.answered += 1;
        dialogue.over = true;
        const facts = e.factsOf(c, row.key, row.version);
        dialogue.served = dialogue.served or facts.traits.served;
        const said = roles.read(facts.response, frame.data, 4, facts.traits.tagged_answer);
        const muted_until = dialogue.turns.muted_until;
        if (row.latency != NO_TIME) {
            // A response in another version than asked for has an error code.
            const throttle = if (said.code orelse 0 == 0) @max(said.throttle, 0) * std.time.ns_per_ms else 0;
            const at_once = facts.traits.throttled_at_once;
            const waited = dialogue.turns.answer(pending.time, frame.time, row.latency, throttle, at_once);
            row.behind, row.muted = .{ waited.behind, waited.muted };
        }
        links.noteExchange(e, c, row.ordinal, frame.time, muted_until, if (row.latency == NO_TIME or row.duration == NO_TIME) null else .{
            .request_first = pending.first_time,
            .request_done = pending.time,
            .response_first = frame.first_time,
            .response_done = frame.time,
        });
        if (pending.regular and flags == 0 and row.latency >= 0) {
            const request_here = if (pending.call == e.calls) pending.message else NONE;
            const tagged = facts.traits.tagged_answer;
            row.body = if (tagged) 5 else 4;
            const tags = tagged and (frame.data.len < 5 or frame.data[4] != 0);
            dialogue.open(e, c);
            if (e.putRegular(c, &row, .{ .tags = tags }, -1, request_here)) |index| {
                if (asked) |at| e.asked.items[at].pair = index;
                return;
            }
        }
        e.put(c, row);
        if (pending.mechanism == 0) return;
        dialogue.offered = 0;
        if (dialogue.tokens == null and said.code == 0) dialogue.beginTokens(e, c, pending.mechanism);
    }

    /// A response does not answer the request with its id.
    fn leaveUnpaired(dialogue: *Dialogue, e: *Engine, c: *Connection, frame: *const Frame, early: ?u32) void {
        if (dialogue.requests == .behind) {
            // Its request may still arrive.
            e.put(c, .{ .kind = .unexpected });
            if (early) |place| return dialogue.refuseEarly(e, c, place);
            return dialogue.addEarly(e, c, std.mem.readInt(i32, frame.data[0..4], .big), frame);
        }
        if (early) |place| return dialogue.giveUp(e, c, dialogue.early.remove(e.gpa, place));
        dialogue.orphan(e, c, frame);
    }

    // -- tokens ---------------------------------------------------------------------------------------------------------

    /// Whether a frame is a raw token, in an authentication or after a handshake whose answer is missing.
    fn isToken(dialogue: *Dialogue, e: *Engine, c: *Connection, frame: *const Frame, is_request: bool) bool {
        if (is_request) {
            if (dialogue.tokens == null) {
                const offered = dialogue.offered;
                dialogue.offered = 0;
                if (e.askBytes(c, .likely_request, frame.data, 0, 0, false)) return false;
                dialogue.beginTokens(e, c, offered);
            }
            const tokens = &dialogue.tokens.?;
            const expected = switch (tokens.mechanism) {
                .other => true,
                .plain => tokens.client < 1,
                .scram => tokens.client < 2 and startsWithAny(frame.data, &.{ "n,", "y,", "p=", "c=" }),
            };
            const token = expected and !tokens.over and !e.askBytes(c, .likely_request, frame.data, 0, 0, false);
            tokens.over = !token;
            tokens.client += @intFromBool(token);
            return token;
        }
        if (dialogue.tokens == null) return false;
        // If bytes are missing, tokens cannot be counted: a fitting answer ends them.
        if (dialogue.ledger.count() != 0 and frame.data.len >= 4 and isExactAnswer(e, c, frame.data)) return false;
        // The broker answers each of the client's. For known mechanisms its prefix decides, since with two capture
        // points it may precede the client's.
        const tokens = &dialogue.tokens.?;
        const token = switch (tokens.mechanism) {
            .other => tokens.broker < tokens.client,
            .plain => frame.data.len == 0,
            .scram => tokens.broker < 2 and startsWithAny(frame.data, &SCRAM_ANSWERS),
        };
        tokens.broker += @intFromBool(token);
        return token;
    }
};

/// Processes the next frame of either stream, in the order of their completion. Hot.
pub fn take(e: *Engine, c: *Connection, one: *const Frame) void {
    const dialogue = &c.kafka.talk.?.dialogue;
    c.kafka.log.at(one.order, one.time, one.last_seen);
    const is_request = one.dir == c.kafka.client;
    if ((dialogue.tokens != null or dialogue.offered != 0) and dialogue.isToken(e, c, one, is_request)) {
        links.noteToken(e, c, one.time);
        return e.put(c, rowOf(one, .token));
    }
    if (one.data.len < types.LEAST[@intFromBool(is_request)] and !one.cut()) {
        dialogue.tooShort(e, c, one, is_request);
    } else {
        dialogue.endShort(e, c, one.dir);
        if (is_request) dialogue.request(e, c, one) else dialogue.response(e, c, one);
    }
    if (dialogue.early.count() != 0 and dialogue.requests == .here) {
        dialogue.early.clock += 1;
        while (dialogue.early.due(e.gpa)) |late| dialogue.giveUp(e, c, late);
    }
}

/// Whether bytes are exactly a message of this stream: a request, or a response to an outstanding one.
pub fn isMessage(e: *Engine, c: *Connection, d: usize, bytes: []const u8) bool {
    if (d == c.kafka.client) return e.askBytes(c, .judge_request, bytes, 1, 0, false);
    return bytes.len >= 4 and isExactAnswer(e, c, bytes);
}

fn isExactAnswer(e: *Engine, c: *Connection, bytes: []const u8) bool {
    const id = std.mem.readInt(i32, bytes[0..4], .big);
    const pending = c.kafka.talk.?.dialogue.ledger.oldest(id) orelse return false;
    return e.askBytes(c, .exact_response, bytes, pending.key, pending.version, false);
}

fn rowOf(one: *const Frame, kind: types.Kind) types.Row {
    return .{
        .kind = kind,
        .at = @intFromPtr(one.data.ptr),
        .first_packet = one.first_packet,
        .last_packet = one.last_packet,
        .first_time = one.first_time,
        .time = one.time,
        .packet = one.last_seen,
        .size = @intCast(one.size),
        .have = @intCast(one.data.len),
        .direction = @intCast(one.dir),
        .position = one.at,
    };
}

/// The bytes of a frame that is not a message count as skipped.
fn uncount(e: *Engine, c: *Connection, one: *const Frame) i64 {
    const size = 4 + @as(i64, @intCast(one.data.len));
    c.kafka.talk.?.streams[one.dir].unread += size;
    e.totals.decoded -= size;
    return size;
}

/// A frame that is not a message: its bytes could be anything, even a token.
fn unreadable(e: *Engine, c: *Connection, one: *const Frame, why: types.Unreadable) void {
    _ = uncount(e, c, one);
    e.put(c, .{
        .kind = .unreadable,
        .direction = @intCast(one.dir),
        .size = @intCast(one.size),
        .have = @intCast(one.data.len),
        .position = one.at,
        .a = @backingInt(why),
    });
}

/// Whether a response begins before its request is complete.
fn precedes(one: *const Frame, pending: *const Pending) bool {
    const since = elapsed(pending.time, one.first_time);
    return since != NO_TIME and since < 0;
}

fn elapsed(from: i64, to: i64) i64 {
    return if (from == NO_TIME or to == NO_TIME) NO_TIME else to -| from;
}

fn mechanismOf(name: []const u8) Mechanism {
    if (std.mem.eql(u8, name, "PLAIN")) return .plain;
    if (std.mem.eql(u8, name, "SCRAM-SHA-256") or std.mem.eql(u8, name, "SCRAM-SHA-512")) return .scram;
    return .other;
}

fn startsWithAny(bytes: []const u8, heads: []const []const u8) bool {
    for (heads) |head| if (std.mem.startsWith(u8, bytes, head)) return true;
    return false;
}
