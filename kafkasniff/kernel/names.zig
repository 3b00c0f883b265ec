//! Names of topic ids and fetch sessions in lines: what an enricher adds to bodies (`kafkasniff/enrich/enricher.py`).
//!
//! The enricher keeps what is known. Here is a table of the names that were asked for, and what a line lacks is asked of
//! the caller, who answers and calls again. `kafkasniff/native/names.py` has the same structures.

const Error = @import("reader.zig").Error;
const std = @import("std");

/// Places of the table that are looked at for an id; messages with one that is in none of them are Python's.
const MAX_PROBES = 64;
/// As `enrich.sessions.FINAL_EPOCH`.
const FINAL_EPOCH = -1;

pub const State = enum(u32) {
    /// Asked for, or not known to the caller any more.
    wanted = 0,
    /// Nobody knows the name.
    unknown = 1,
    /// Known, but no message told it.
    given = 2,
    learnt = 3,
    _,
};

/// A topic id and its name; without an id the place is empty.
pub const Topic = extern struct {
    id: [16]u8,
    text: ?[*]const u8,
    size: u32,
    state: State,
};

/// What the caller has to do before the message is written; all of them, one after the other.
pub const Asks = packed struct(u32) {
    /// Name topics: the places in `wants`.
    topics: bool = false,
    /// Make the table larger, or empty it.
    room: bool = false,
    /// Say what the message has to do with a fetch session.
    session: bool = false,
    rest: u29 = 0,
};

pub const Names = extern struct {
    topics: [*]Topic,
    /// Places of the table less 1; a power of two.
    mask: u64,
    /// Places that are not empty.
    used: u64,
    wants: [*]u32,
    wants_size: u64,
    /// By message, 1: a request that has nothing to do with fetch sessions.
    plain: [*]u8,
    plain_size: u64,
    /// The answer: the message, how many partitions its session holds (negative: it is in none) and, as JSON, what is
    /// shown of it.
    answered: u64,
    partitions: i64,
    session: ?[*]const u8,
    session_size: u64,

    // Results
    asks: Asks,
    wanted: u32,
    /// Of a request the number and the epoch of its session, of a response its error code and the session's number.
    facts: [2]i64,

    // The message at hand
    index: u64,
    /// Index of the request of a response.
    pair: u64,
    is_request: u8,
    /// It reports the topics that it names, so that an id may be learnt from it.
    tells: u8,
    /// The string in front of a topic id has a value.
    named: u8,
    count: u8,
    spare: u32,

    pub fn begin(self: *Names, index: u64, pair: u64, is_request: bool, tells: bool) void {
        self.asks = .{};
        self.wanted = 0;
        self.index = index;
        self.pair = pair;
        self.is_request = @intFromBool(is_request);
        self.tells = @intFromBool(tells);
        self.named = 0;
        self.count = 0;
    }

    /// Whether the caller has something to do; else what was written stands.
    pub inline fn isAsking(self: *const Names) bool {
        return @as(u32, @bitCast(self.asks)) != 0;
    }

    /// The name that is put beside a topic id; null: none. `Odd` where the message has more to say than that: it tells
    /// the name, or, with records beside the id, the topic is one of the brokers' own.
    pub fn beside(self: *Names, id: *const [16]u8, is_named: bool, has_records: bool) Error!?[]const u8 {
        if (std.mem.allEqual(u8, id, 0)) return null;
        if (is_named and self.tells == 0) return null;
        const found = try self.topic(id) orelse return null;
        if (is_named) return if (found.state == .learnt) null else error.Odd;
        const name = nameOf(found) orelse return null;
        if (has_records and std.mem.startsWith(u8, name, "__")) return error.Odd;
        return name;
    }

    /// The name of a topic id, as far as it is known.
    pub fn get(self: *Names, id: *const [16]u8) Error!?[]const u8 {
        return nameOf(try self.topic(id) orelse return null);
    }

    fn nameOf(found: *const Topic) ?[]const u8 {
        return (found.text orelse return null)[0..found.size];
    }

    /// Null: the caller is asked.
    fn topic(self: *Names, id: *const [16]u8) Error!?*const Topic {
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
                // At most half of the table is used, so that ways are short.
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

    /// The next of `facts`; behind the last one what is shown of the session, null where nothing is.
    pub fn fact(self: *Names, value: i64) Error!?[]const u8 {
        if (self.count >= self.facts.len) return error.Odd;
        self.facts[self.count] = value;
        self.count += 1;
        if (self.count < self.facts.len) return null;
        if (self.is_request != 0) {
            if (self.facts[0] == 0 and self.facts[1] == FINAL_EPOCH) {
                if (self.index < self.plain_size) self.plain[self.index] = 1;
                return null;
            }
        } else if (self.pair < self.plain_size and self.plain[self.pair] != 0) return null;
        if (self.answered != self.index) {
            self.asks.session = true;
            return error.Odd;
        }
        return (self.session orelse return null)[0..self.session_size];
    }

    /// How many partitions the session of the message holds; null: it is in none.
    pub fn held(self: *const Names) ?i64 {
        return if (self.answered == self.index and self.partitions >= 0) self.partitions else null;
    }
};
