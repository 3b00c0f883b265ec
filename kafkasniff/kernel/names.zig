//! Names of topic ids and fetch sessions that an enricher adds to bodies (`kafkasniff/enrich/enricher.py`).
//!
//! The enricher keeps the names. This table caches the names that were asked for. If a line needs another one, the call
//! ends; the caller adds it and calls again. The caller knows the sessions of all messages before their lines are written.
//! `kafkasniff/native/names.py` has the same structures.

const Error = @import("reader.zig").Error;
const std = @import("std");

/// Places of the table that are probed for an id. A message whose id is in none of them is left to Python.
const MAX_PROBES = 64;
/// Fields of a request that identify its session. The text of the session follows them.
const SESSION_FIELDS = 2;

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
    rest: u30 = 0,
};

/// The fetch session of a request.
pub const Session = extern struct {
    partitions: i64,
    /// What bodies show of it.
    text: [*]const u8,
    text_size: u64,
};

pub const Names = extern struct {
    topics: [*]Topic,
    /// Number of places minus 1; the number is a power of two.
    mask: u64,
    /// Places that are not empty.
    used: u64,
    wants: [*]u32,
    wants_size: u64,
    /// By message: 1 plus the place of its session, or 0 if it is in none.
    sessions: ?[*]const u32,
    sessions_size: u64,
    held: [*]const Session,

    // Results
    asks: Asks,
    wanted: u32,

    // The current message
    index: u64,
    /// Its session; null: it has none.
    session: ?*const Session,
    /// It maps topic ids to names, so that an id may be learnt from it.
    teaches: u8,
    /// The string before a topic id has a value.
    named: u8,
    /// Number of its fields so far that identify its session.
    fields: u8,
    spare: [5]u8,

    /// Another message.
    pub fn begin(self: *Names, index: u64, teaches: bool) void {
        self.asks = .{};
        self.wanted = 0;
        self.index = index;
        const place = if (self.sessions) |known| (if (index < self.sessions_size) known[index] else 0) else 0;
        self.session = if (place > 0) &self.held[place - 1] else null;
        self.teaches = @intFromBool(teaches);
        self.named = 0;
        self.fields = 0;
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

    /// Counts a field that identifies the session. Returns the session's text after the last one, if there is a session.
    pub fn afterField(self: *Names) ?[]const u8 {
        self.fields +|= 1;
        if (self.fields != SESSION_FIELDS) return null;
        const session = self.session orelse return null;
        return session.text[0..session.text_size];
    }
};
