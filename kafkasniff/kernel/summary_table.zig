//! Tables of summaries: the layout of a message with the fields, lists and nodes of a template.
//!
//! `kafkasniff/sinks/summaries/compiled.py` writes them. `check` validates every index before a table is used.

const Kind = @import("program.zig").Kind;
const MAX_DEPTH = @import("program.zig").MAX_DEPTH;
const std = @import("std");

pub const MAGIC: u32 = 0x32_53_53_4B; // "KSS2"
pub const MAX_SLOTS = 96;
pub const MAX_LISTS = 16;
/// The deepest nesting of nodes, and of lists within elements of lists.
const MAX_NESTING = 24;
pub const NONE: u16 = 0xFFFF;
/// Structs within each other, the body included.
pub const MAX_STRUCTS = MAX_DEPTH + 2;
/// Words of a condition: its kind, its slot, and a number or another slot.
pub const TEST_SIZE = 4;

pub const Flags = packed struct(u16) {
    array: bool,
    nullable: bool,
    compact: bool,
    flexible: bool,
    tagged: bool,
    secret: bool,
    watched: bool,
    unaligned: bool,
    whole: bool,
    /// A topic's id, and its name, which comes before or after the id.
    topic_id: bool,
    topic_name: bool,
    rest: u5,
};

pub const Field = extern struct {
    kind: Kind,
    spare: u8,
    flags: Flags,
    /// Structs: the number of fields that follow. Those of the tag section come last.
    fields: u16,
    tagged: u16,
    /// The slot of its value, or of an array's number of elements; `NONE`: it is not kept.
    slot: u16,
    /// Arrays: the slot to which the number of its elements is added.
    sum: u16,
    /// Arrays: the list of its elements.
    runs: u16,
    /// Bytes of a value of fixed size that is skipped, together with such fields after it; else 0.
    width: u16,
    /// Structs that may contain errors: what the errors are of.
    subject: u16,
    spare2: u16,
    tag: u32,
    /// The field after this one and its descendants.
    next: u32,
};

/// How the errors of a struct, and of the structs in it, name their subject. All are slots, `NONE` if there is no such
/// field.
pub const Subject = extern struct {
    /// The number of a partition.
    partition: u32,
    /// A topic's name and id; the id is replaced by the name it stands for.
    topic: u32,
    id: u32,
    /// The broker's words for an error, and the leader that clients shall ask instead.
    message: u32,
    leader: u32,
    /// A range of the words: slots of names, of which the first one that has a value is used.
    names: u32,
    names_end: u32,
    /// Whether Python words errors of the struct itself, and those of structs in it.
    own_odd: u32,
    inner_odd: u32,
};

pub const ListKind = enum(u32) {
    /// A text for each struct.
    each = 0,
    /// Names.
    words = 1,
    /// Numbers of partitions, of several topics.
    partitions = 2,
};

/// A range of the pool: where the bytes begin, and their number.
pub const Literal = extern struct { begin: u32, size: u32 };

pub const List = extern struct {
    kind: ListKind,
    /// The most texts that are shown; 0: all of them.
    shown: u32,
    separator: Literal,
    /// The noun for those that are not shown.
    noun: Literal,
    /// The nodes of an element's text.
    code: u32,
    code_end: u32,
    /// Whether no text is empty, so that elements can be counted without writing them.
    counts_all: u32,
    /// Slots of an element, and the lists within it.
    first_slot: u32,
    slots: u32,
    first_list: u32,
    lists: u32,
    /// Once a struct has a value in this slot, structs without one are only counted.
    prefer: u32,
    /// Partitions: slots of the topic's name and id, and of a partition's number.
    name: u32,
    id: u32,
    index: u32,
    /// A struct with a value in this slot, an error code, is not listed.
    failed: u32,
};

pub const Node = enum(u32) {
    text = 0,
    nothing = 1,
    word = 2,
    number = 3,
    name = 4,
    amount = 5,
    count = 6,
    list = 7,
    label = 8,
    topic = 9,
    records = 10,
    base_offset = 11,
    types = 12,
    address = 13,
    parts = 14,
    choice = 15,
    _,
};

pub const Test = enum(u32) {
    some = 0,
    none = 1,
    equal = 2,
    unequal = 3,
    least = 4,
    is_null = 5,
    not_null = 6,
    /// Equal to another slot, or not.
    same = 7,
    other = 8,
    _,
};

pub const Head = extern struct {
    magic: u32,
    length: u32,
    fields: u32,
    lists: u32,
    /// Number of words of nodes.
    words: u32,
    pool: u32,
    root_slots: u32,
    root_lists: u32,
    slots: u32,
    code: u32,
    code_end: u32,
    is_response: u32,
    /// The slots for the partitions of a fetch session, and for its number.
    session: u32,
    session_id: u32,
    /// How long a response asks the client to wait.
    throttle: u32,
    subjects: u32,
    /// 1: the template asks whether the message has a field, which the layout decides. It may not if the body ends early.
    settled: u32,
};

const NOWHERE: u32 = NONE;

pub const Table = struct {
    head: *const Head,
    fields: []const Field,
    lists: []const List,
    subjects: []const Subject,
    code: []const u32,
    pool: []const u8,

    /// A table that `check` has accepted.
    pub inline fn at(address: [*]const u8) Table {
        const head: *const Head = @ptrCast(@alignCast(address));
        const fields: [*]const Field = @ptrCast(@alignCast(address + @sizeOf(Head)));
        const lists: [*]const List = @ptrCast(@alignCast(fields + head.fields));
        const subjects: [*]const Subject = @ptrCast(@alignCast(lists + head.lists));
        const code: [*]const u32 = @ptrCast(@alignCast(subjects + head.subjects));
        const pool: [*]const u8 = @ptrCast(code + head.words);
        return .{
            .head = head,
            .fields = fields[0..head.fields],
            .lists = lists[0..head.lists],
            .subjects = subjects[0..head.subjects],
            .code = code[0..head.words],
            .pool = pool[0..head.pool],
        };
    }

    pub inline fn text(self: *const Table, begin: u32, size: u32) []const u8 {
        return self.pool[begin..][0..size];
    }

    pub inline fn literal(self: *const Table, place: Literal) []const u8 {
        return self.text(place.begin, place.size);
    }

    /// The name of a number in the enum at a position of the code: a count, then for each name the number (low word
    /// first) and its range of the pool.
    pub fn nameOf(self: *const Table, at_word: u32, number: i64) ?[]const u8 {
        const wanted: u64 = @bitCast(number);
        var place = at_word + 1;
        for (0..self.code[at_word]) |_| {
            const entry = self.code[place..][0..4];
            if ((@as(u64, entry[0]) | @as(u64, entry[1]) << 32) == wanted) return self.text(entry[2], entry[3]);
            place += 4;
        }
        return null;
    }
};

/// Whether these bytes are a valid table.
pub fn check(bytes: []const u8) bool {
    if (@intFromPtr(bytes.ptr) % 4 != 0 or bytes.len < @sizeOf(Head)) return false;
    const head: *const Head = @ptrCast(@alignCast(bytes.ptr));
    if (head.magic != MAGIC or head.length != bytes.len or head.fields == 0) return false;
    const size = @sizeOf(Head) + @as(u64, head.fields) * @sizeOf(Field) + @as(u64, head.lists) * @sizeOf(List) +
        @as(u64, head.subjects) * @sizeOf(Subject) + @as(u64, head.words) * 4 + head.pool;
    if (size != bytes.len or head.lists > MAX_LISTS or head.slots > MAX_SLOTS) return false;
    const lists_at = @sizeOf(Head) + @as(usize, head.fields) * @sizeOf(Field);
    // Kinds are enums, so their numbers must be checked before they are read.
    for (0..head.lists) |index| {
        const kind = std.mem.readInt(u32, bytes[lists_at + index * @sizeOf(List) ..][0..4], .little);
        if (kind > @intFromEnum(ListKind.partitions)) return false;
    }
    var checked = Check{ .table = Table.at(bytes.ptr) };
    return checked.run();
}

const Check = struct {
    table: Table,

    fn run(self: *const Check) bool {
        const head = self.table.head;
        if (head.root_slots > head.slots or head.root_lists > head.lists) return false;
        if (!self.perhaps(head.session) or !self.perhaps(head.session_id) or !self.perhaps(head.throttle)) return false;
        if (head.session_id == NOWHERE and head.session != NOWHERE) return false;
        for (self.table.fields) |*field| {
            if (@intFromEnum(field.kind) > @intFromEnum(Kind.structure)) return false;
            if (!self.perhaps(field.slot) or !self.perhaps(field.sum)) return false;
            if (field.subject != NONE and (field.kind != .structure or field.subject >= head.subjects)) return false;
            if (field.width > 0 and (field.slot != NONE or field.kind == .structure)) return false;
            if (field.runs == NONE) continue;
            if (field.runs >= head.lists) return false;
            switch (self.table.lists[field.runs].kind) {
                .each => if (field.kind != .structure) return false,
                .words => if (field.kind != .string) return false,
                .partitions => if (field.kind != .structure and field.kind != .int32) return false,
            }
        }
        if (self.table.fields[0].kind != .structure) return false;
        if ((self.structure(0, 1) orelse return false) != head.fields) return false;
        for (self.table.lists) |*list| {
            if (list.first_slot > head.slots or list.slots > head.slots - list.first_slot) return false;
            if (list.first_list > head.lists or list.lists > head.lists - list.first_list) return false;
            if (!self.literal(list.separator.begin, list.separator.size) or !self.literal(list.noun.begin, list.noun.size)) return false;
            if (!self.perhaps(list.failed) or !self.perhaps(list.prefer) or !self.perhaps(list.name) or !self.perhaps(list.id)) return false;
            if (list.kind == .partitions and !self.slot(list.index)) return false;
            if (!self.sequence(list.code, list.code_end, 0)) return false;
        }
        for (self.table.subjects) |*one| {
            for ([_]u32{ one.partition, one.topic, one.id, one.message, one.leader }) |number| {
                if (!self.perhaps(number)) return false;
            }
            if (one.names > one.names_end or one.names_end > self.table.code.len) return false;
            for (self.table.code[one.names..one.names_end]) |number| if (!self.slot(number)) return false;
        }
        return self.sequence(head.code, head.code_end, 0);
    }

    fn slot(self: *const Check, number: u32) bool {
        return number < self.table.head.slots;
    }

    fn perhaps(self: *const Check, number: u32) bool {
        return number == NOWHERE or self.slot(number);
    }

    fn literal(self: *const Check, begin: u32, size: u32) bool {
        return begin <= self.table.pool.len and size <= self.table.pool.len - begin;
    }

    /// The field after a struct; null if the struct is invalid.
    fn structure(self: *const Check, index: u32, depth: u32) ?u32 {
        if (depth > MAX_DEPTH + 1) return null;
        const op = &self.table.fields[index];
        var next = index + 1;
        for (0..@as(u32, op.fields) + op.tagged) |_| {
            if (next >= self.table.fields.len) return null;
            const field = &self.table.fields[next];
            const behind = if (field.kind == .structure) self.structure(next, depth + 1) orelse return null else next + 1;
            if (field.next != behind) return null;
            next = behind;
        }
        return if (op.next == next) next else null;
    }

    fn sequence(self: *const Check, begin: u32, end: u32, depth: u32) bool {
        if (depth > MAX_NESTING or begin > end or end > self.table.code.len) return false;
        var at = begin;
        while (at < end) {
            if (end - at < 3) return false;
            const size = self.table.code[at + 1];
            if (size < 3 or size > end - at) return false;
            if (!self.node(self.table.code[at..][0..size], at, depth)) return false;
            at += size;
        }
        return true;
    }

    fn node(self: *const Check, code: []const u32, at: u32, depth: u32) bool {
        return switch (@as(Node, @enumFromInt(code[0]))) {
            .text, .nothing => code.len == 4 and self.literal(code[2], code[3]),
            .word, .number, .amount, .records, .base_offset => code.len == 3 and self.slot(code[2]),
            .name => code.len == 4 and self.slot(code[2]) and self.names(code[3]),
            .count => code.len == 6 and self.slot(code[2]) and self.literal(code[3], code[4]),
            .list => code.len == 3 and code[2] < self.table.head.lists,
            .label, .types => code.len == 5 and self.perhaps(code[2]) and self.perhaps(code[3]) and self.slot(code[4]),
            .topic => code.len == 4 and self.perhaps(code[2]) and self.perhaps(code[3]),
            .address => code.len == 4 and self.slot(code[2]) and self.slot(code[3]),
            .parts => self.parts(code, at, depth),
            .choice => self.choice(code, at, depth),
            _ => false,
        };
    }

    fn names(self: *const Check, at: u32) bool {
        if (at >= self.table.code.len) return false;
        const count = self.table.code[at];
        if (count > (self.table.code.len - at - 1) / 4) return false;
        for (0..count) |number| {
            const entry = self.table.code[at + 1 + 4 * number ..][0..4];
            if (!self.literal(entry[2], entry[3])) return false;
        }
        return true;
    }

    fn parts(self: *const Check, code: []const u32, at: u32, depth: u32) bool {
        var place: u32 = 3;
        for (0..code[2]) |_| {
            if (place >= code.len) return false;
            const size = code[place];
            if (size > code.len - place - 1) return false;
            if (!self.sequence(at + place + 1, at + place + 1 + size, depth + 1)) return false;
            place += 1 + size;
        }
        return place == code.len;
    }

    fn choice(self: *const Check, code: []const u32, at: u32, depth: u32) bool {
        var place: u32 = 3;
        for (0..code[2]) |_| {
            if (place >= code.len) return false;
            const size = code[place];
            if (size > code.len - place - 1 or size < 2) return false;
            const count = code[place + 2];
            if (count > (size - 2) / TEST_SIZE) return false;
            for (0..count) |number| {
                const one = code[place + 3 + number * TEST_SIZE ..][0..TEST_SIZE];
                if (one[0] > @intFromEnum(Test.other) or !self.slot(one[1])) return false;
                if (one[0] >= @intFromEnum(Test.same) and !self.slot(one[2])) return false;
            }
            const body = place + 3 + count * TEST_SIZE;
            if (!self.sequence(at + body, at + place + 1 + size, depth + 1)) return false;
            place += 1 + size;
        }
        return place == code.len;
    }
};
