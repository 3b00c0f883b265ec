//! How values are shown in trees (`tree.zig`). `kafkasniff/native/text_lines.py` has the same structures.

const Pages = @import("tree_text.zig").Pages;
const Text = @import("lines.zig").Text;

/// How a value is annotated: the role of its op in a tree's program. Higher numbers are those of enums.
pub const Note = enum(u8) {
    none = 0,
    /// A time, unless it is a code.
    time = 1,
    error_code = 2,
    _,

    pub const FIRST_ENUM = 3;
    /// Added to an enum some of whose values are times.
    pub const TIMES = 0x80;
};

/// A value of an enum and its name.
pub const EnumValue = extern struct {
    number: i64,
    /// The value as text; null: it is a number.
    key: Text,
    name: Text,
};

pub const Enum = extern struct { values: [*]const EnumValue, size: u64 };

/// What all trees of a run have in common.
pub const Style = extern struct {
    width: u64,
    enums: [*]const Enum,
    enums_size: u64,
    pages: *const Pages,
    /// Codes of colours.
    name: Text,
    note: Text,
    dim: Text,
    reset: Text,
};
