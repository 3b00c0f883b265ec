//! Exchanges of `feed.zig` as columns: both bodies as JSON text, the names in them, and the positions of their record
//! batches.
//!
//! The specification is `kafkasniff/tables/rows/exchanges.py`. A body is walked twice: as JSON, which finds every problem in
//! it, and for its facts (`exchange_facts.zig`). Exchanges with anything more to report than problems that the walk notes
//! are left to Python.

const calls = @import("call.zig");
const exchange_columns = @import("exchange_columns.zig");
const Facts = @import("exchange_facts.zig").Facts;
const feed = @import("feed_found.zig");
const isText = @import("text.zig").isText;
const Json = @import("json.zig").Json;
const kindOf = @import("lines.zig").kindOf;
const problems_of = @import("line_problems.zig");
const programs = @import("program.zig");
const Problem = @import("walk_notes.zig").Problem;
const reading = @import("reader.zig");
const std = @import("std");
const walking = @import("walk.zig");

const Error = reading.Error;
const Message = feed.Message;

pub const Exchanges = exchange_columns.Exchanges;
pub const NONE = exchange_columns.NONE;
pub const Pair = exchange_columns.Pair;
pub const Partition = exchange_columns.Partition;
pub const Reported = exchange_columns.Reported;
pub const Row = exchange_columns.Row;
pub const Shared = exchange_columns.Shared;
pub const Texts = exchange_columns.Texts;
pub const UNNAMED = exchange_columns.UNNAMED;
pub const Wanted = exchange_columns.Wanted;

/// Writes rows from `next` on, after those of the last call only if it asked for names (`names.Asks`).
pub fn run(call: *Exchanges) calls.Status {
    if (!std.math.isPowerOfTwo(call.names.table_size) or call.next > call.pairs_size) return .misuse;
    if (call.continues == 0 and !reset(call)) return .misuse;
    while (call.next < call.pairs_size) : (call.next += 1) {
        if (call.rows_used == call.rows_size) return .no_room;
        const before = .{ call.requests.used, call.responses.used, call.topics_used, call.partitions_used, call.batches_used, call.codes_used, call.problems_used, call.details.used };
        exchange(call) catch |reason| {
            call.requests.used, call.responses.used, call.topics_used, call.partitions_used, call.batches_used, call.codes_used, call.problems_used, call.details.used = before;
            if (reason == error.NoRoom) return .no_room;
            if (call.topic_names) |names| if (names.isAsking()) return .asks;
            continue;
        };
        call.rows_used += 1;
        call.requests.offsets[call.rows_used] = @intCast(call.requests.used);
        call.responses.offsets[call.rows_used] = @intCast(call.responses.used);
    }
    return .done;
}

/// Starts with no rows. False: the caller's memory is too large.
fn reset(call: *Exchanges) bool {
    inline for (.{ &call.requests, &call.responses, &call.names.texts, &call.details }) |texts| {
        if (texts.size > std.math.maxInt(i32)) return false;
        texts.used = 0;
        texts.offsets[0] = 0;
    }
    @memset(call.names.table[0..call.names.table_size], NONE);
    call.names.count = 0;
    call.rows_used = 0;
    call.topics_used = 0;
    call.partitions_used = 0;
    call.batches_used = 0;
    call.codes_used = 0;
    call.problems_used = 0;
    return true;
}

fn exchange(call: *Exchanges) Error!void {
    // What a message before asked for must not count for this exchange.
    if (call.topic_names) |names| names.asks = .{};
    const pair = &call.pairs[call.next];
    const is_whole = pair.response != NONE;
    if (pair.request >= call.found.size or (is_whole and pair.response >= call.found.size)) return error.Odd;
    const asked = &call.found.rows[pair.request];
    const data = try call.found.bytes(asked);
    const first_batch = call.batches_used;
    const row = &call.rows[call.rows_used];
    row.* = .{
        .pair = call.next,
        .records = 0,
        .values = @splat(0),
        .has = .{},
        .throttle = 0,
        .code = 0,
        .codes = 0,
        .client_id = NONE,
        .group = NONE,
        .transaction = NONE,
        .asked_member = NONE,
        .given_member = NONE,
        .topics = 0,
        .partitions = 0,
        .batches = 0,
        .asked_topics = 0,
        .asked_partitions = 0,
        .facts = 0,
        .facts_size = 0,
        .problems = 0,
    };
    if (try call.found.clientId(asked)) |text| {
        if (!isText(text)) return error.Odd;
        row.client_id = try call.names.index(text);
    }
    if (call.headers != 0) return;
    const request = try Body.of(call, asked, data);
    const first_problem = call.problems_used;
    const asked_end = try request.json(call, &call.requests, pair.request, row);
    var facts = Facts{
        .call = call,
        .row = row,
        .fields = .{ .program = request.program, .reader = .{ .bytes = request.data, .at = request.start } },
        .is_request = true,
        .first_topic = call.topics_used,
        .first_partition = call.partitions_used,
        .end = asked_end,
    };
    try facts.body();
    row.asked_topics = @intCast(call.topics_used - facts.first_topic);
    row.asked_partitions = @intCast(call.partitions_used - facts.first_partition);
    if (is_whole) {
        const answered = &call.found.rows[pair.response];
        const response = try Body.of(call, answered, try call.found.bytes(answered));
        facts.end = try response.json(call, &call.responses, pair.response, row);
        facts.fields = .{ .program = response.program, .reader = .{ .bytes = response.data, .at = response.start } };
        facts.is_request = false;
        try facts.body();
    }
    row.topics = @intCast(call.topics_used - facts.first_topic);
    row.partitions = @intCast(call.partitions_used - facts.first_partition);
    row.batches = @intCast(call.batches_used - first_batch);
    row.problems = @intCast(call.problems_used - first_problem);
    row.has.groups = facts.many_groups;
    row.has.transactions = facts.many_transactions;
    if (facts.many_groups) row.group = NONE;
    if (facts.many_transactions) row.transaction = NONE;
    for (call.partitions[facts.first_partition..call.partitions_used]) |*one| {
        if (!one.has.batches) continue;
        row.has.records = true;
        row.records += one.records;
    }
}

/// A body, and the program that decodes it.
const Body = struct {
    program: programs.Program,
    data: []const u8,
    start: usize,

    fn of(call: *const Exchanges, message: *const Message, data: []const u8) Error!Body {
        if (message.flags.tags or message.code >= feed.KEYS * feed.VERSIONS or message.size > call.most) return error.Odd;
        const address = call.programs[kindOf(message)] orelse return error.Odd;
        if (message.body > data.len or message.time == feed.NO_TIME) return error.Odd;
        return .{ .program = programs.Program.at(address), .data = data, .start = message.body };
    }

    /// Appends its JSON to these texts if it is wanted, and what the walk notes to the row. Returns where a problem ended
    /// the walk, if one did.
    fn json(self: *const Body, call: *Exchanges, into: *Texts, index: u32, row: *Row) Error!?usize {
        const message = &call.found.rows[index];
        const one = call.call;
        one.batches_wanted = 0;
        one.batches_given = 0;
        one.records = 0;
        one.truncated = 0;
        one.looked_at = 0;
        var out = Json{ .bytes = into.data[0..into.size], .at = into.used, .form = one.wants.form };
        var walk = walking.Walk(Json).init(one, self.program, self.data, self.start, &out, null);
        if (call.topic_names) |names| {
            // Fetch sessions are added to bodies after the run (`tables/rows/resolve.py`).
            names.begin(index, !message.flags.request);
            walk.names = names;
        }
        const after = try walk.run();
        if (call.topic_names) |names| if (names.isAsking()) return error.Odd;
        if (walk.account.wanting) return error.Odd;
        var noted = walk.notes.used;
        if (walk.notes.problems > 0 or after != self.data.len) {
            const careful = &(call.careful orelse return error.Odd)[kindOf(message)];
            noted = (try problems_of.take(&walk, after, self.data, self.start, &call.wordings, careful)).noted;
            try problems(call, one.notes[0..noted], careful, message.flags.request);
        }
        const has_codes = try codes(call, one.notes[0..noted], if (message.flags.request) null else row);
        const is_wanted = if (call.bodies) |bodies| switch (bodies[kindOf(message)]) {
            .always => true,
            .with_errors => has_codes,
            else => false,
        } else false;
        if (is_wanted) into.used = out.at;
        return if (walk.ended) after else null;
    }
};

/// Adds the error codes among what a walk has noted to the row. Returns whether there are any.
fn codes(call: *Exchanges, notes: []const u8, into: ?*Row) Error!bool {
    var found = false;
    var reader = problems_of.NotedReader{ .bytes = notes };
    while (reader.next()) |note| {
        if (note.kind != 0) continue;
        found = true;
        const row = into orelse continue;
        const code: i32 = @intCast(note.facts[0]);
        if (row.codes == 0) row.code = code;
        row.codes += 1;
        if (call.codes_used == call.codes_size) return error.NoRoom;
        call.codes[call.codes_used] = code;
        call.codes_used += 1;
    }
    return found;
}

/// Adds the problems that a walk has noted.
fn problems(call: *Exchanges, notes: []const u8, careful: *const problems_of.Careful, is_request: bool) Error!void {
    @branchHint(.unlikely);
    const details = &call.details;
    var out = Json{ .bytes = details.data[0..details.size], .at = details.used, .form = call.call.wants.form };
    var reader = problems_of.NotedReader{ .bytes = notes };
    while (reader.next()) |note| {
        if (note.kind == 0) continue;
        // Its names would not be text.
        if (note.kind == @intFromEnum(Problem.not_text)) return error.Odd;
        if (call.problems_used == call.problems_size) return error.NoRoom;
        try problems_of.detail(&out, &note, &call.wordings, careful);
        call.problems[call.problems_used] = .{
            .offset = @intCast(note.position),
            .bytes = if (note.kind == @intFromEnum(Problem.trailing)) note.facts[0] else -1,
            .row = @intCast(call.rows_used),
            .kind = note.kind,
            .is_request = @intFromBool(is_request),
        };
        call.problems_used += 1;
        details.used = out.at;
        details.offsets[call.problems_used] = @intCast(out.at);
    }
}
