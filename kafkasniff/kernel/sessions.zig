//! Fetch sessions whose partitions the caller has passed on (`kafkasniff/native/names.py`).
//!
//! Most requests of a session name only partitions that it has. They and their responses change nothing, so the kernel
//! handles them without the caller, who applies them to the order of its sessions afterwards (`Sessions.steps`).

const Fields = @import("fields.zig").Fields;
const feed = @import("feed_found.zig");
const programs = @import("program.zig");
const reading = @import("reader.zig");
const std = @import("std");

const Error = reading.Error;

/// `kafkasniff/native/names.py` has the same numbers.
const Role = enum(u8) {
    none = 0,
    /// A struct or an array of structs with other roles.
    inside = 1,
    /// The name or the id of a topic, before its partitions.
    topic = 2,
    partition = 3,
    /// An array that has elements only in requests that change their session.
    change = 4,
    _,
};

pub const Topic = extern struct {
    text: [*]const u8,
    size: u64,
    /// One bit for each partition, the lowest first.
    bits: [*]const u8,
    /// In bytes.
    bits_size: u64,

    fn has(self: *const Topic, partition: i64) bool {
        if (partition < 0 or partition >> 3 >= self.bits_size) return false;
        return self.bits[@intCast(partition >> 3)] >> @intCast(partition & 7) & 1 != 0;
    }
};

/// The session of a connection.
pub const Session = extern struct {
    number: i64,
    /// Null: nothing is known of the connection's session.
    program: ?[*]const u8,
    /// Sorted by their text.
    topics: [*]const Topic,
    topics_size: u64,
    /// The JSON that is shown of it.
    text: ?[*]const u8,
    text_size: u64,
    /// Number of partitions; negative: the session began before the capture, and nothing is shown of it.
    partitions: i64,
    /// The code of the version of the API that `program` reads.
    code: u32,
    spare: u32,

    fn find(self: *const Session, text: []const u8) ?*const Topic {
        var first: usize = 0;
        var last = self.topics_size;
        while (first < last) {
            const middle = first + (last - first) / 2;
            const topic = &self.topics[middle];
            switch (std.mem.order(u8, topic.text[0..topic.size], text)) {
                .eq => return topic,
                .lt => first = middle + 1,
                .gt => last = middle,
            }
        }
        return null;
    }
};

pub const Sessions = extern struct {
    /// By the index of a connection.
    places: [*]const Session,
    places_size: u64,
    /// Messages that were handled without the caller, in order; as many as there are messages.
    steps: [*]u32,
    steps_size: u64,
    steps_used: u64,

    // The current message
    data: [*]const u8,
    data_size: u64,
    body: u64,
    /// The session of a request, if `is_step`.
    session: ?*const Session,
    connection: u32,
    code: u32,
    /// 1: it becomes a step if its line is written.
    is_step: u64,

    pub fn begin(self: *Sessions, message: *const feed.Message, data: []const u8) void {
        self.data = data.ptr;
        self.data_size = data.len;
        self.body = message.body;
        self.connection = message.connection;
        self.code = message.code;
        self.is_step = 0;
    }

    /// A request's session if the request does not change it. Null: the caller is asked.
    pub fn unchanged(self: *const Sessions, number: i64) ?*const Session {
        if (self.connection >= self.places_size) return null;
        const session = &self.places[self.connection];
        const program = session.program orelse return null;
        if (session.number != number or session.code != self.code) return null;
        if (session.partitions < 0) return session;
        var request = Request{
            .fields = .{
                .program = programs.Program.at(program),
                .reader = .{ .bytes = self.data[0..self.data_size], .at = self.body },
            },
            .session = session,
        };
        request.structure(0) catch return null;
        return session;
    }

    /// The current message is handled here; false if there is no room for it. `session`: of a request.
    pub fn step(self: *Sessions, session: ?*const Session) bool {
        if (self.steps_used == self.steps_size) return false;
        self.session = session;
        self.is_step = 1;
        return true;
    }

    /// The session of the current message, if it is a request that is handled here.
    pub fn current(self: *const Sessions) ?*const Session {
        return if (self.is_step != 0) self.session else null;
    }

    /// The line of the current message is written.
    pub inline fn finish(self: *Sessions, index: u64) void {
        if (self.is_step == 0) return;
        self.is_step = 0;
        self.steps[self.steps_used] = @intCast(index);
        self.steps_used += 1;
    }
};

/// Reads the lists of a request; `Odd` if they may change its session.
const Request = struct {
    fields: Fields,
    session: *const Session,
    topic: ?*const Topic = null,

    const Self = @This();

    fn structure(self: *Self, index: u32) Error!void {
        const op = &self.fields.program.ops[index];
        var child = index + 1;
        for (0..op.fields) |_| {
            const field = &self.fields.program.ops[child];
            switch (@as(Role, @enumFromInt(field.role))) {
                .none => try self.fields.skip(child),
                .inside => {
                    if (field.kind != .structure or !field.flags.array) return error.Odd;
                    for (0..try self.fields.length(field) orelse 0) |_| try self.structure(child);
                },
                .topic => {
                    const size = if (field.kind == .uuid) 16 else try self.fields.textLength(field) orelse 0;
                    self.topic = self.session.find(try self.fields.reader.take(size));
                },
                .partition => {
                    const topic = self.topic orelse return error.Odd;
                    if (!topic.has(try self.fields.number(field))) return error.Odd;
                },
                .change => if (try self.fields.length(field) orelse 0 > 0) return error.Odd,
                _ => return error.Odd,
            }
            child = field.next;
        }
        if (op.flags.flexible) try self.fields.tags(op, child);
    }
};
