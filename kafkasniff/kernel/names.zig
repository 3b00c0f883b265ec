//! Names of topic ids and fetch sessions that an enricher adds to bodies (`kafkasniff/enrich/enricher.py`).
//!
//! The enricher keeps the names. This table caches the names that were asked for. If a line needs another one, the call
//! ends; the caller adds it and calls again. `kafkasniff/native/names.py` has the same structures.

const Error = @import("reader.zig").Error;
const feed = @import("feed_found.zig");
const Session = @import("sessions.zig").Session;
const Sessions = @import("sessions.zig").Sessions;
const std = @import("std");

/// Places of the table that are probed for an id. A message whose id is in none of them is left to Python.
const MAX_PROBES = 64;
/// As `enrich.sessions.INITIAL_EPOCH` and `FINAL_EPOCH`: such requests begin or end sessions.
const INITIAL_EPOCH = 0;
const FINAL_EPOCH = -1;

pub const State = enum(u32) {
    /// Requested, or the caller has forgotten it.
    wanted = 0,
    /// Nobody knows the name.
    unknown = 1,
    /// Known, but not from a message.
    given = 2,
    learnt = 3,
    _,
};

/// A topic id and its name; a place without an id is empty.
pub const Topic = extern struct {
    id: [16]u8,
    text: ?[*]const u8,
    size: u32,
    state: State,
};

/// The steps that the caller has to take, in this order, before the message is written.
pub const Asks = packed struct(u32) {
    /// Name topics: the places in `wants`.
    topics: bool = false,
    /// Enlarge the table, or empty it.
    room: bool = false,
    /// Answer how the message relates to a fetch session.
    session: bool = false,
    rest: u29 = 0,
};

/// What the response to a request does to a fetch session.
pub const Answer = enum(u8) {
    unknown = 0,
    /// Nothing: the request has no session.
    nothing = 1,
    /// The request continued a session, which only an error or the session 0 ends.
    continues = 2,
    _,
};

pub const Names = extern struct {
    topics: [*]Topic,
    /// Number of places minus 1; the number is a power of two.
    mask: u64,
    /// Places that are not empty.
    used: u64,
    wants: [*]u32,
    wants_size: u64,
    /// By message: what its response does to a fetch session.
    answers: [*]Answer,
    answers_size: u64,
    /// The answer: the message, the number of partitions of its session (negative: it has no session), and the JSON
    /// that is shown of it.
    answered: u64,
    partitions: i64,
    session: ?[*]const u8,
    session_size: u64,

    // Results
    asks: Asks,
    wanted: u32,
    /// Requests: number and epoch of the session. Responses: error code and number of the session.
    facts: [2]i64,

    // The current message
    index: u64,
    /// Index of the request of a response.
    pair: u64,
    is_request: u8,
    /// It maps topic ids to names, so that an id may be learnt from it.
    teaches: u8,
    /// The string before a topic id has a value.
    named: u8,
    count: u8,
    spare: u32,
    /// Sessions that need no answer; null: none.
    sessions: ?*Sessions,

    pub fn begin(self: *Names, index: u64, pair: u64, is_request: bool, teaches: bool) void {
        self.asks = .{};
        self.wanted = 0;
        self.index = index;
        self.pair = pair;
        self.is_request = @intFromBool(is_request);
        self.teaches = @intFromBool(teaches);
        self.named = 0;
        self.count = 0;
    }

    /// Whether the caller has something to do; else the output is valid.
    pub inline fn isAsking(self: *const Names) bool {
        return @as(u32, @bitCast(self.asks)) != 0;
    }

    /// The name to write beside a topic id; null: none. `Odd` if Python has to handle the message: it maps the id to a
    /// name, or has records of one of the brokers' own topics.
    pub fn beside(self: *Names, id: *const [16]u8, is_named: bool, has_records: bool) Error!?[]const u8 {
        if (std.mem.allEqual(u8, id, 0)) return null;
        if (is_named and self.teaches == 0) return null;
        const found = try self.topic(id) orelse return null;
        if (is_named) return if (found.state == .learnt) null else error.Odd;
        const name = nameOf(found) orelse return null;
        if (has_records and std.mem.startsWith(u8, name, "__")) return error.Odd;
        return name;
    }

    /// The name of a topic id, if it is known.
    pub fn get(self: *Names, id: *const [16]u8) Error!?[]const u8 {
        return nameOf(try self.topic(id) orelse return null);
    }

    pub fn nameOf(found: *const Topic) ?[]const u8 {
        return (found.text orelse return null)[0..found.size];
    }

    /// What is known of a topic id. Null: the caller is asked.
    pub fn topic(self: *Names, id: *const [16]u8) Error!?*const Topic {
        const low = std.mem.readInt(u64, id[0..8], .little);
        const high = std.mem.readInt(u64, id[8..16], .little);
        const mixed = (low ^ std.math.rotl(u64, high, 32)) *% 0x9E37_79B9_7F4A_7C15;
        var place = (mixed >> 32) & self.mask;
        for (0..MAX_PROBES) |_| {
            const found = &self.topics[place];
            if (std.mem.eql(u8, &found.id, id)) {
                if (found.state != .wanted) return found;
                break;
            }
            if (std.mem.allEqual(u8, &found.id, 0)) {
                // At most half of the table is used, which keeps probing short.
                if (2 * self.used > self.mask) {
                    self.asks.room = true;
                    return error.Odd;
                }
                self.used += 1;
                found.* = .{ .id = id.*, .text = null, .size = 0, .state = .wanted };
                break;
            }
            place = (place + 1) & self.mask;
        } else return error.Odd;
        self.asks.topics = true;
        if (self.wanted == self.wants_size) return error.Odd;
        self.wants[self.wanted] = @intCast(place);
        self.wanted += 1;
        return null;
    }

    /// Takes the next of `facts`. After the last one, returns the text of the session, or null if nothing is shown.
    pub fn fact(self: *Names, value: i64) Error!?[]const u8 {
        if (self.count >= self.facts.len) return error.Odd;
        self.facts[self.count] = value;
        self.count += 1;
        if (self.count < self.facts.len) return null;
        if (self.answered != self.index and !self.isKnown()) {
            self.asks.session = true;
            return error.Odd;
        }
        if (self.answered == self.index) return (self.session orelse return null)[0..self.session_size];
        const session = self.followed() orelse return null;
        return (session.text orelse return null)[0..session.text_size];
    }

    /// Whether the caller need not be asked for the message's session.
    fn isKnown(self: *Names) bool {
        if (self.is_request == 0) {
            if (self.pair >= self.answers_size) return false;
            return switch (self.answers[self.pair]) {
                .nothing => true,
                .continues => if (self.sessions) |sessions|
                    self.facts[0] == 0 and self.facts[1] != 0 and sessions.step(null)
                else
                    false,
                else => false,
            };
        }
        if (self.facts[1] == FINAL_EPOCH and self.facts[0] == 0) return self.answer(.nothing);
        if (self.facts[1] == FINAL_EPOCH or self.facts[1] == INITIAL_EPOCH) return false;
        const sessions = self.sessions orelse return false;
        const session = sessions.unchanged(self.facts[0]) orelse return false;
        if (session.partitions < 0) return self.answer(.nothing);
        return sessions.step(session) and self.answer(.continues);
    }

    fn answer(self: *Names, does: Answer) bool {
        if (self.index < self.answers_size) self.answers[self.index] = does;
        return true;
    }

    /// The number of partitions of the message's session; null: it has no session.
    pub fn held(self: *const Names) ?i64 {
        if (self.answered == self.index) return if (self.partitions >= 0) self.partitions else null;
        return if (self.followed()) |session| session.partitions else null;
    }

    /// The session of a request that need not be answered.
    inline fn followed(self: *const Names) ?*const Session {
        return if (self.sessions) |sessions| sessions.current() else null;
    }

    /// Another message. `data`: its bytes.
    pub inline fn enter(self: *Names, index: u64, message: *const feed.Message, teaches: bool, data: []const u8) void {
        self.begin(index, message.pair, message.flags.request, teaches);
        if (self.sessions) |sessions| sessions.begin(message, data);
    }

    /// The line of the message is written: the caller will not see it.
    pub inline fn leave(self: *const Names, index: u64) void {
        if (self.sessions) |sessions| sessions.finish(index);
    }

    /// The message has no line, at least for now.
    pub inline fn drop(self: *const Names) void {
        if (self.sessions) |sessions| sessions.is_step = 0;
    }
};
