//! Writes `records` fields; `walk` is a `walk.Walk`.

const json = @import("json.zig");
const record_fields = @import("records.zig");

const Error = @import("reader.zig").Error;
const Op = @import("program.zig").Op;

/// The largest `records` field that is written with its message; Python decodes the batches of larger ones one by one.
const MAX_FIELD = 64 << 10;

/// Writes a `records` field that Python adds nothing to.
pub fn whole(walk: anytype, op: *const Op, value: []const u8, begin: usize) Error!void {
    if (op.flags.secret or op.flags.unaligned) return error.Odd;
    const call = walk.account.call;
    const before = call.truncated;
    call.truncated = 0;
    try record_fields.field(walk.out, value, begin, &walk.account);
    if (call.truncated > 0 and walk.program.traits.whole_records) return error.Odd;
    if (call.truncated == 0) call.truncated = before;
}

/// Writes a `records` field that Python may add to. Large, compressed and odd ones are left to it.
pub fn parts(walk: anytype, op: *const Op, value: []const u8, begin: usize) Error!void {
    if (op.flags.unaligned) return walk.out.place(.unaligned, begin, value.len);
    const call = walk.account.call;
    const mark = walk.out.at;
    const account = walk.account;
    const truncated = call.truncated;
    const counted = call.records;
    const looked_at = call.looked_at;
    const wanted = call.batches_wanted;
    if (value.len <= MAX_FIELD) {
        const as_json = call.wants.json_records and !op.flags.secret and value.len > 0;
        const done = if (as_json) rendered(walk, value, begin) else plain(walk, value, begin);
        if (done) return else |reason| if (reason != error.Odd) return reason;
    }
    call.batches_wanted = wanted;
    walk.out.at = mark;
    walk.account = account;
    call.truncated = truncated;
    call.records = counted;
    call.looked_at = looked_at;
    try walk.out.place(.records, begin, value.len);
}

fn plain(walk: anytype, value: []const u8, begin: usize) Error!void {
    try record_fields.field(walk.out, value, begin, &walk.account);
}

/// Writes the field as JSON within MessagePack.
fn rendered(walk: anytype, value: []const u8, begin: usize) Error!void {
    const call = walk.account.call;
    const before = call.truncated;
    const mark = try walk.out.openRendered(begin, value.len);
    var inner = json.Json{
        .bytes = walk.out.bytes,
        .at = walk.out.at,
        .form = call.wants.form,
        .hiding = walk.account.hiding,
    };
    call.truncated = 0;
    try record_fields.field(&inner, value, begin, &walk.account);
    // Python decompresses.
    if (walk.account.wanting) return error.Odd;
    if (walk.account.framed[0] or walk.account.framed[1]) walk.wrote_schema_ids = true;
    walk.out.at = inner.at;
    try walk.out.closeRendered(mark, call.truncated);
    if (call.truncated == 0) call.truncated = before;
}
