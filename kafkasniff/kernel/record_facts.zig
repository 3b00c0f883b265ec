//! What is read inside of records and shown beside them: schema ids in front of keys and values, trace ids in headers.
//!
//! The specification is `kafka/embedded/schema_registry.py` and `trace_ids.py`.

const std = @import("std");

/// The framing of a schema registry in front of all keys, or all values, of one `records` field.
pub const Framing = struct {
    present: bool = false,
    /// Everything so far begins like a framing.
    all: bool = true,
    /// Everything so far is as long as a number or a UUID.
    are_numbers: bool = true,
    ids: [MAX_SCHEMAS]u32 = undefined,
    ids_count: usize = 0,
    /// Whether something is there in the first or the last record of the batch at hand, and of any batch.
    first: ?bool = null,
    last: bool = false,
    at_edge: bool = false,

    /// As `schema_registry.MAX_SCHEMAS`, `_PREFIX` and `MAX_ID`.
    const MAX_SCHEMAS = 4;
    const PREFIX = 5;
    const MAX_ID = 0xFF_FFFF;

    /// The key or the value of the next record.
    pub inline fn see(self: *Framing, value: ?[]const u8) void {
        if (self.first == null) self.first = value != null;
        self.last = value != null;
        const found = value orelse return;
        self.present = true;
        if (self.all) self.judge(found);
    }

    fn judge(self: *Framing, value: []const u8) void {
        self.all = value.len > PREFIX and value[0] == 0 and self.isKnown(idOf(value));
        if (value.len != 8 and value.len != 16) self.are_numbers = false;
    }

    /// Whether it is an id, and one of few.
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
        if ((self.first orelse false) or self.last) self.at_edge = true;
        self.first = null;
        self.last = false;
    }

    /// Whether all of them are framed.
    pub fn holds(self: *const Framing) bool {
        return self.present and self.all and !self.are_numbers and self.at_edge;
    }

    /// The schema id of a value that is framed.
    pub fn idOf(value: []const u8) u32 {
        return std.mem.readInt(u32, value[1..PREFIX], .big);
    }
};

/// The trace ids of a record, each once.
pub const Traces = struct {
    /// As `trace_ids.MAX_TRACE_IDS` and `MAX_VALUE`.
    const MAX_IDS = 8;
    const MAX_VALUE = 1024;

    ids: [MAX_IDS][]const u8 = undefined,
    count: usize = 0,

    /// The value of a header that holds a W3C `traceparent` (Trace Context, 3.2); others have no id.
    pub fn see(self: *Traces, value: ?[]const u8) void {
        const id = traceId(value orelse return) orelse return;
        for (self.ids[0..self.count]) |one| {
            if (std.mem.eql(u8, one, id)) return;
        }
        if (self.count == MAX_IDS) return;
        self.ids[self.count] = id;
        self.count += 1;
    }

    /// version-id-span-flags, and in later versions perhaps more.
    fn traceId(value: []const u8) ?[]const u8 {
        if (value.len < 55 or value.len > MAX_VALUE) return null;
        const version, const id, const span, const flags = .{ value[0..2], value[3..35], value[36..52], value[53..55] };
        if (value[2] != '-' or value[35] != '-' or value[52] != '-') return null;
        if (!isHex(version) or !isHex(id) or !isHex(span) or !isHex(flags)) return null;
        if (std.mem.eql(u8, version, "ff")) return null;
        const is_first = std.mem.eql(u8, version, "00");
        if (value.len > 55 and (is_first or value[55] != '-')) return null;
        // All zeros are no id.
        return if (isZero(id) or isZero(span)) null else id;
    }

    fn isHex(text: []const u8) bool {
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
