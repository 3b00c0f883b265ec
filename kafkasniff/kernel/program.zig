//! Programs: the layout of a message of one API, version and direction, as a flat table of ops.
//!
//! `kafkasniff/kafka/schema/program.py` compiles them from the definitions and describes them; this file knows nothing of
//! Kafka's messages.

const std = @import("std");

pub const MAGIC: u32 = 0x31_50_53_4B; // "KSP1"
/// The deepest nesting of structs; the grammar of definitions has the same bound (`definition.MAX_DEPTH`).
pub const MAX_DEPTH = 24;

pub const Kind = enum(u8) {
    boolean = 0,
    int8 = 1,
    int16 = 2,
    uint16 = 3,
    int32 = 4,
    uint32 = 5,
    int64 = 6,
    float64 = 7,
    uuid = 8,
    string = 9,
    bytes = 10,
    records = 11,
    error_code = 12,
    structure = 13,
    _,
};

pub const Flags = packed struct(u16) {
    array: bool,
    nullable: bool,
    /// Lengths are unsigned varints of length + 1 (KIP-482).
    compact: bool,
    /// Structs: it ends with a tag section.
    flexible: bool,
    /// The field is in a tag section.
    tagged: bool,
    secret: bool,
    /// A string that is `Odd` if it begins with two underscores: it may name one of the brokers' own topics.
    watched: bool,
    /// A configuration value, which is secret depending on the name beside it.
    config: bool,
    /// Records: they are a slice of a log.
    unaligned: bool,
    payload: bool,
    /// Bytes that hold a whole nested message.
    nests: bool,
    /// A topic's id, and its name, which comes before or after the id.
    topic_id: bool,
    topic_name: bool,
    /// A fact about the message's fetch session, in a field of the body itself.
    session: bool,
    /// A set of operations. Python adds their names, unless the set is absent (`NO_SET`).
    set: bool,
    rest: u1,
};

pub const Op = extern struct {
    kind: Kind,
    /// The field's role in its exchange (`exchange_facts.zig`).
    role: u8,
    flags: Flags,
    /// Structs: the number of fields that follow. Those of the tag section come last.
    fields: u16,
    tagged: u16,
    /// Position of the name in the pool, in JSON form: `"name":`.
    name: u32,
    name_size: u32,
    tag: u32,
    /// Minimum size in bytes of a value, or of an array's element.
    size: u32,
    /// The op after this one and its descendants.
    next: u32,
};

pub const Traits = packed struct(u32) {
    /// One of its fields is secret, or may be.
    secrets: bool,
    /// Its records must not end within a batch.
    whole_records: bool,
    /// One of its fields is payload, or may be. Tags without a definition may be payload, too.
    payload: bool,
    rest: u29,
};

const Head = extern struct {
    magic: u32,
    length: u32,
    ops: u32,
    pool: u32,
    traits: Traits,
};

pub const Program = struct {
    ops: []const Op,
    pool: []const u8,
    traits: Traits,

    /// A program that `check` has accepted.
    pub inline fn at(address: [*]const u8) Program {
        const head: *const Head = @ptrCast(@alignCast(address));
        const ops: [*]const Op = @ptrCast(@alignCast(address + @sizeOf(Head)));
        return .{
            .ops = ops[0..head.ops],
            .pool = address[head.pool..head.length],
            .traits = head.traits,
        };
    }

    /// `"name":`
    pub inline fn key(self: *const Program, op: *const Op) []const u8 {
        return self.pool[op.name..][0..op.name_size];
    }

    /// `name`
    pub inline fn name(self: *const Program, op: *const Op) []const u8 {
        return self.pool[op.name + 1 ..][0 .. op.name_size - 3];
    }
};

/// Whether these bytes are a valid program: every index and every name is within bounds.
pub fn check(bytes: []const u8) bool {
    if (@intFromPtr(bytes.ptr) % @alignOf(Op) != 0 or bytes.len < @sizeOf(Head)) return false;
    const head: *const Head = @ptrCast(@alignCast(bytes.ptr));
    if (head.magic != MAGIC or head.length != bytes.len or head.ops == 0) return false;
    if (head.pool > head.length or @as(u64, head.ops) * @sizeOf(Op) + @sizeOf(Head) != head.pool) return false;
    const program = Program.at(bytes.ptr);
    for (program.ops) |*op| {
        if (@intFromEnum(op.kind) > @intFromEnum(Kind.structure)) return false;
        if (op.flags.topic_id and (op.kind != .uuid or op.flags.array)) return false;
        if (@as(u64, op.name) + op.name_size > program.pool.len) return false;
    }
    if (program.ops[0].kind != .structure) return false;
    return (structure(&program, 0, 1) orelse return false) == head.ops;
}

/// The op after a struct; null if the struct is invalid.
fn structure(program: *const Program, index: u32, depth: u32) ?u32 {
    if (depth > MAX_DEPTH + 1) return null;
    const op = &program.ops[index];
    var next = index + 1;
    for (0..@as(u32, op.fields) + op.tagged) |_| {
        if (next >= program.ops.len) return null;
        const field = &program.ops[next];
        if (field.name_size < 4) return null;
        const behind = if (field.kind == .structure) structure(program, next, depth + 1) orelse return null else next + 1;
        if (field.next != behind) return null;
        next = behind;
    }
    return if (op.next == next) next else null;
}
