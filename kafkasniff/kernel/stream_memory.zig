//! Memory of an engine: size classes over slabs, with a count of the bytes in use. For one thread.
//!
//! Streams allocate and free many small pieces; freed ones serve the next of their class. The engine's users check the
//! count between packets, and every buffer of a connection has a bound of its own.

const std = @import("std");

const Alignment = std.mem.Alignment;

const SMALLEST = 5; // 32 bytes
const LARGEST = 16; // 64 KiB; larger pieces are pages of their own
const SLAB = 256 << 10;
const Node = struct { next: ?*Node };
const Slab = struct { next: ?*Slab };
const HEAD = 1 << SMALLEST;

/// The system has no memory left: like any process, this one ends.
pub fn exhausted() noreturn {
    @panic("out of memory");
}

pub const Pool = struct {
    free_lists: [LARGEST + 1]?*Node = @splat(null),
    slabs: ?*Slab = null,
    rest: []u8 = &.{},
    used: u64 = 0,

    pub fn allocator(pool: *Pool) std.mem.Allocator {
        return .{ .ptr = pool, .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free } };
    }

    /// Gives the slabs back. Larger pieces have to be freed before.
    pub fn deinit(pool: *Pool) void {
        while (pool.slabs) |slab| {
            pool.slabs = slab.next;
            const bytes: [*]align(4096) u8 = @ptrCast(@alignCast(slab));
            std.heap.page_allocator.free(bytes[0..SLAB]);
        }
    }

    fn class(len: usize) usize {
        if (len <= 1 << SMALLEST) return SMALLEST;
        return std.math.log2_int_ceil(usize, len);
    }

    fn alloc(ptr: *anyopaque, len: usize, alignment: Alignment, ret: usize) ?[*]u8 {
        const pool: *Pool = @ptrCast(@alignCast(ptr));
        const c = class(len);
        if (c > LARGEST) {
            const got = std.heap.page_allocator.rawAlloc(len, alignment, ret) orelse return null;
            pool.used += len;
            return got;
        }
        const size = @as(usize, 1) << @intCast(c);
        if (pool.free_lists[c]) |node| {
            pool.free_lists[c] = node.next;
            pool.used += size;
            return @ptrCast(node);
        }
        if (pool.rest.len < size) {
            while (pool.rest.len >= 1 << SMALLEST) {
                const k = @min(std.math.log2_int(usize, pool.rest.len), LARGEST);
                pool.give(k, pool.rest.ptr);
                pool.rest = pool.rest[@as(usize, 1) << @intCast(k) ..];
            }
            const more = std.heap.page_allocator.alignedAlloc(u8, .fromByteUnits(4096), SLAB) catch return null;
            const slab: *Slab = @ptrCast(@alignCast(more.ptr));
            slab.next = pool.slabs;
            pool.slabs = slab;
            pool.rest = more[HEAD..];
        }
        if (pool.rest.len < size) return null;
        const got = pool.rest.ptr;
        pool.rest = pool.rest[size..];
        pool.used += size;
        return got;
    }

    fn give(pool: *Pool, c: usize, memory: [*]u8) void {
        const node: *Node = @ptrCast(@alignCast(memory));
        node.next = pool.free_lists[c];
        pool.free_lists[c] = node;
    }

    fn resize(_: *anyopaque, memory: []u8, _: Alignment, new: usize, _: usize) bool {
        const c = class(memory.len);
        return c <= LARGEST and class(new) == c;
    }

    fn remap(ptr: *anyopaque, memory: []u8, alignment: Alignment, new: usize, ret: usize) ?[*]u8 {
        if (resize(ptr, memory, alignment, new, ret)) return memory.ptr;
        if (class(memory.len) > LARGEST and class(new) > LARGEST) {
            const pool: *Pool = @ptrCast(@alignCast(ptr));
            const got = std.heap.page_allocator.rawRemap(memory, alignment, new, ret) orelse return null;
            pool.used = pool.used - memory.len + new;
            return got;
        }
        return null;
    }

    fn free(ptr: *anyopaque, memory: []u8, alignment: Alignment, ret: usize) void {
        const pool: *Pool = @ptrCast(@alignCast(ptr));
        const c = class(memory.len);
        if (c > LARGEST) {
            pool.used -= memory.len;
            std.heap.page_allocator.rawFree(memory, alignment, ret);
            return;
        }
        pool.used -= @as(usize, 1) << @intCast(c);
        pool.give(c, memory.ptr);
    }
};
