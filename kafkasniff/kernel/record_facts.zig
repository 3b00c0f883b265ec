//! Facts found inside records and shown beside them: schema ids before keys and values, trace ids in headers.
//!
//! The specification is `kafka/record_facts.py`.

const Error = @import("reader.zig").Error;
const HeaderKind = @import("call.zig").HeaderKind;
const std = @import("std");

/// The schema registry framing of all keys, or all values, of one `records` field.
pub const Framing = struct {
    present: bool = false,
    /// All values so far begin with a framing.
    all: bool = true,
    /// All values so far have the length of a number or a UUID.
    are_numbers: bool = true,
    ids: [MAX_SCHEMAS]u32 = undefined,
    ids_count: usize = 0,
    /// Whether the first or the last record of the current batch has a value, and whether any batch has one.
    first: ?bool = null,
    last: bool = false,
    at_edge: bool = false,
    /// Control batches: the value of the first record, or else of the last one, does not begin with a framing.
    is_other: bool = false,

    /// As `record_facts.MAX_SCHEMAS`, `_PREFIX` and `MAX_ID`.
    const MAX_SCHEMAS = 4;
    const PREFIX = 5;
    const MAX_ID = 0xFF_FFFF;

    /// Takes the key or the value of the next record.
    pub inline fn see(self: *Framing, value: ?[]const u8) void {
        if (self.first == null) self.first = value != null;
        self.last = value != null;
        const found = value orelse return;
        self.present = true;
        if (self.all) self.judge(found);
    }

    /// Takes that of a control record, which has no framing; but the first record decides whether to look for one.
    pub fn pass(self: *Framing, value: ?[]const u8) void {
        const is_first = self.first == null;
        if (is_first) self.first = value != null;
        self.last = value != null;
        if (is_first or self.first == false) self.is_other = if (value) |found| found.len == 0 or found[0] != 0 else false;
    }

    fn judge(self: *Framing, value: []const u8) void {
        self.all = value.len > PREFIX and value[0] == 0 and self.isKnown(idOf(value));
        if (value.len != 8 and value.len != 16) self.are_numbers = false;
    }

    /// Whether the id is known, or can be added because there are few ids so far.
    fn isKnown(self: *Framing, id: u32) bool {
        if (id < 1 or id > MAX_ID) return false;
        for (self.ids[0..self.ids_count]) |one| {
            if (one == id) return true;
        }
        if (self.ids_count == MAX_SCHEMAS) return false;
        self.ids[self.ids_count] = id;
        self.ids_count += 1;
        return true;
    }

    pub fn endBatch(self: *Framing) void {
        if ((self.first orelse false) or self.last) {
            if (self.is_other and !self.at_edge) self.all = false;
            self.at_edge = true;
        }
        self.is_other = false;
        self.first = null;
        self.last = false;
    }

    /// Whether all values are framed.
    pub fn holds(self: *const Framing) bool {
        return self.present and self.all and !self.are_numbers and self.at_edge;
    }

    /// The schema id of a framed value.
    pub fn idOf(value: []const u8) u32 {
        return std.mem.readInt(u32, value[1..PREFIX], .big);
    }
};

/// A trace id as it is shown: in lower case, with the leading zeros that its form omits.
pub const TraceId = struct {
    digits: []const u8,
    zeros: usize = 0,

    pub const MAX_SIZE = 35;

    /// The text, written to `memory`.
    pub fn text(self: *const TraceId, memory: *[MAX_SIZE]u8) []const u8 {
        @memset(memory[0..self.zeros], '0');
        _ = std.ascii.lowerString(memory[self.zeros..], self.digits);
        return memory[0 .. self.zeros + self.digits.len];
    }

    fn isZero(self: *const TraceId) bool {
        return std.mem.allEqual(u8, self.digits, '0');
    }

    fn equals(self: *const TraceId, other: *const TraceId) bool {
        var memory: [2][MAX_SIZE]u8 = undefined;
        return std.mem.eql(u8, self.text(&memory[0]), other.text(&memory[1]));
    }
};

/// The distinct trace ids of a record.
pub const Traces = struct {
    /// As `record_facts.MAX_TRACE_IDS` and `MAX_VALUE`.
    const MAX_IDS = 8;
    const MAX_VALUE = 1024;

    ids: [MAX_IDS]TraceId = undefined,
    count: usize = 0,

    /// Takes the value of a header of this kind. A value that does not have the right form has no id.
    pub fn see(self: *Traces, kind: HeaderKind, value: ?[]const u8) void {
        const given = value orelse return;
        if (given.len > MAX_VALUE) return;
        const id = traceId(kind, given) orelse return;
        for (self.ids[0..self.count]) |*one| {
            if (one.equals(&id)) return;
        }
        if (self.count == MAX_IDS) return;
        self.ids[self.count] = id;
        self.count += 1;
    }

    fn traceId(kind: HeaderKind, value: []const u8) ?TraceId {
        var cursor = Cursor{ .text = value };
        const id: TraceId = switch (kind) {
            .w3c => return w3c(value),
            .b3 => .{ .digits = cursor.b3() orelse return null },
            .b3_id => .{ .digits = cursor.wholeId() orelse return null },
            .jaeger => jaeger: {
                const digits = cursor.hex(1, 32) orelse return null;
                for ([_]usize{ 16, 16, 2 }) |most| {
                    if (!cursor.skip(":") and !cursor.skip("%3A")) return null;
                    _ = cursor.hex(1, most) orelse return null;
                }
                break :jaeger .{ .digits = digits, .zeros = (if (digits.len <= 16) @as(usize, 16) else 32) - digits.len };
            },
            .datadog => {
                if (value.len < 1 or value.len > 20 or value[0] == '0') return null;
                for (value) |character| if (!std.ascii.isDigit(character)) return null;
                _ = std.fmt.parseInt(u64, value, 10) catch return null;
                return .{ .digits = value };
            },
            .x_ray => return xRay(value),
            .google => google: {
                const digits = cursor.hex(32, 32) orelse return null;
                if (cursor.skip("/")) {
                    cursor.at += decimal(value[cursor.at..], 20) orelse return null;
                    if (cursor.skip(";o=")) {
                        if (cursor.at == value.len or value[cursor.at] < '0' or value[cursor.at] > '3') return null;
                        cursor.at += 1;
                    }
                }
                break :google .{ .digits = digits };
            },
            else => return null,
        };
        // An id of all zeros is invalid.
        return if (cursor.at < value.len or id.isZero()) null else id;
    }

    /// The number of decimal digits at the beginning of a text; null unless there are 1 to `most`.
    fn decimal(text: []const u8, most: usize) ?usize {
        var size: usize = 0;
        while (size < text.len and size < most and std.ascii.isDigit(text[size])) size += 1;
        return if (size > 0) size else null;
    }

    /// W3C Trace Context, 3.2: version-id-span-flags, with optional additions in later versions.
    fn w3c(value: []const u8) ?TraceId {
        if (value.len < 55) return null;
        const version, const id, const span, const flags = .{ value[0..2], value[3..35], value[36..52], value[53..55] };
        if (value[2] != '-' or value[35] != '-' or value[52] != '-') return null;
        for ([_][]const u8{ version, id, span, flags }) |part| if (!isLowerHex(part)) return null;
        if (std.mem.eql(u8, version, "ff")) return null;
        const is_first = std.mem.eql(u8, version, "00");
        if (value.len > 55 and (is_first or value[55] != '-')) return null;
        // An id of all zeros is invalid.
        return if (isZero(id) or isZero(span)) null else .{ .digits = id };
    }

    /// The field `Root` in the first of the semicolon-separated fields.
    fn xRay(value: []const u8) ?TraceId {
        var fields = std.mem.splitScalar(u8, value, ';');
        for (0..9) |_| {
            const field = std.mem.trimStart(u8, fields.next() orelse return null, " \t\n\r\x0b\x0c");
            if (field.len != 5 + TraceId.MAX_SIZE or !std.mem.startsWith(u8, field, "Root=1-")) continue;
            const id = field[5..];
            if (id[10] == '-' and isLowerHex(id[2..10]) and isLowerHex(id[11..])) return .{ .digits = id };
        }
        return null;
    }

    fn isLowerHex(text: []const u8) bool {
        for (text) |character| {
            switch (character) {
                '0'...'9', 'a'...'f' => {},
                else => return false,
            }
        }
        return true;
    }

    fn isZero(text: []const u8) bool {
        return std.mem.allEqual(u8, text, '0');
    }
};

/// Parses a value from its beginning, in upper or lower case.
const Cursor = struct {
    text: []const u8,
    at: usize = 0,

    /// The hex digits that follow; null if there are too few.
    fn hex(self: *Cursor, least: usize, most: usize) ?[]const u8 {
        const begin = self.at;
        while (self.at < self.text.len and self.at - begin < most and std.ascii.isHex(self.text[self.at])) self.at += 1;
        return if (self.at - begin < least) null else self.text[begin..self.at];
    }

    fn skip(self: *Cursor, literal: []const u8) bool {
        if (!std.ascii.startsWithIgnoreCase(self.text[self.at..], literal)) return false;
        self.at += literal.len;
        return true;
    }

    /// An id of 64 or 128 bits.
    fn wholeId(self: *Cursor) ?[]const u8 {
        const found = self.hex(16, 32) orelse return null;
        return if (found.len == 16 or found.len == 32) found else null;
    }

    /// id-span, optionally followed by the sampling state and the parent's span.
    fn b3(self: *Cursor) ?[]const u8 {
        const found = self.wholeId() orelse return null;
        if (!self.skip("-")) return null;
        _ = self.hex(16, 16) orelse return null;
        if (self.skip("-")) {
            if (!self.skip("0") and !self.skip("1") and !self.skip("d")) return null;
            if (self.skip("-")) _ = self.hex(16, 16) orelse return null;
        }
        return found;
    }
};

/// Writes the schema ids of a key and a value, if all of the field are framed.
pub inline fn schemaIds(out: anytype, key: ?[]const u8, value: ?[]const u8, framed: *const [2]bool) Error!void {
    if (framed[0]) if (key) |found| try schemaId(out, "_key", found);
    if (framed[1]) if (value) |found| try schemaId(out, "_value", found);
}

fn schemaId(out: anytype, comptime name: []const u8, value: []const u8) Error!void {
    try out.name(name, false);
    const map = try out.openMap(2, 0);
    try out.name("format", true);
    try out.word("schema-registry");
    try out.name("schema_id", false);
    try out.integer(Framing.idOf(value));
    try out.closeMap(map, 2);
}

pub fn traceIds(out: anytype, traces: *const Traces) Error!void {
    try out.name("_trace_ids", false);
    _ = try out.openArray(traces.count);
    for (traces.ids[0..traces.count], 0..) |*id, index| {
        var memory: [TraceId.MAX_SIZE]u8 = undefined;
        try out.element(index == 0);
        try out.string(id.text(&memory));
    }
    try out.closeArray();
}
