//! Lists of the stream engine whose operations do not depend on their length, or only by a logarithm.

const exhausted = @import("stream_memory.zig").exhausted;
const std = @import("std");

const Allocator = std.mem.Allocator;

pub const NONE = std.math.maxInt(u32);

/// A list whose front is removed often.
pub fn Queue(comptime T: type) type {
    return struct {
        const Self = @This();
        /// `stream_state.zig` stores only the items.
        pub const Item = T;

        list: std.ArrayList(T) = .empty,
        head: usize = 0,

        pub fn items(queue: *const Self) []T {
            return queue.list.items[queue.head..];
        }

        pub fn len(queue: *const Self) usize {
            return queue.list.items.len - queue.head;
        }

        pub fn push(queue: *Self, gpa: Allocator, one: T) void {
            queue.compact();
            queue.list.append(gpa, one) catch exhausted();
        }

        pub fn append(queue: *Self, gpa: Allocator, many: []const T) void {
            queue.compact();
            queue.list.appendSlice(gpa, many) catch exhausted();
        }

        /// Inserts before the item at `i`; the shorter side moves.
        pub fn insert(queue: *Self, gpa: Allocator, i: usize, one: T) void {
            if (queue.head != 0 and i < queue.len() / 2) {
                queue.head -= 1;
                const moved = queue.items();
                std.mem.copyForwards(T, moved[0..i], moved[1 .. i + 1]);
                moved[i] = one;
                return;
            }
            if (queue.head == 0 and i < queue.len() / 2) {
                // Room at the front for as many as there are.
                const n = queue.len();
                queue.list.resize(gpa, 2 * n) catch exhausted();
                std.mem.copyBackwards(T, queue.list.items[n..], queue.list.items[0..n]);
                queue.head = n;
                return queue.insert(gpa, i, one);
            }
            queue.list.insert(gpa, queue.head + i, one) catch exhausted();
        }

        pub fn drop(queue: *Self, n: usize) void {
            queue.head += n;
            if (queue.head == queue.list.items.len) {
                queue.head = 0;
                queue.list.clearRetainingCapacity();
            }
        }

        pub fn pop(queue: *Self) T {
            const one = queue.items()[0];
            queue.drop(1);
            return one;
        }

        /// For short queues.
        pub fn removeAt(queue: *Self, i: usize) T {
            if (i == 0) return queue.pop();
            return queue.list.orderedRemove(queue.head + i);
        }

        pub fn free(queue: *Self, gpa: Allocator) void {
            queue.list.clearAndFree(gpa);
            queue.head = 0;
        }

        fn compact(queue: *Self) void {
            if (queue.head < 64 or queue.head < queue.len()) return;
            const n = queue.len();
            std.mem.copyForwards(T, queue.list.items[0..n], queue.items());
            queue.list.shrinkRetainingCapacity(n);
            queue.head = 0;
        }
    };
}

/// Entries at places that stay the same while they are used.
pub fn Slab(comptime T: type) type {
    return struct {
        const Self = @This();

        entries: std.ArrayList(T) = .empty,
        unused: std.ArrayList(u32) = .empty,

        pub fn at(slab: *const Self, place: u32) *T {
            return &slab.entries.items[place];
        }

        pub fn add(slab: *Self, gpa: Allocator, one: T) u32 {
            if (slab.unused.pop()) |place| {
                slab.entries.items[place] = one;
                return place;
            }
            slab.entries.append(gpa, one) catch exhausted();
            return @intCast(slab.entries.items.len - 1);
        }

        pub fn remove(slab: *Self, gpa: Allocator, place: u32) void {
            if (place + 1 == slab.entries.items.len) {
                slab.entries.shrinkRetainingCapacity(place);
                return;
            }
            slab.unused.append(gpa, place) catch exhausted();
        }

        pub fn free(slab: *Self, gpa: Allocator) void {
            slab.entries.clearAndFree(gpa);
            slab.unused.clearAndFree(gpa);
        }
    };
}

/// A list through entries of a slab, whose links are the fields `next` and `previous`.
pub fn Chain(comptime next: []const u8, comptime previous: []const u8) type {
    return struct {
        const Self = @This();

        first: u32 = NONE,
        last: u32 = NONE,
        count: u32 = 0,

        pub fn append(chain: *Self, slab: anytype, place: u32) void {
            @field(slab.at(place), next) = NONE;
            @field(slab.at(place), previous) = chain.last;
            if (chain.last == NONE) chain.first = place else @field(slab.at(chain.last), next) = place;
            chain.last = place;
            chain.count += 1;
        }

        pub fn remove(chain: *Self, slab: anytype, place: u32) void {
            const after = @field(slab.at(place), next);
            const before = @field(slab.at(place), previous);
            if (before == NONE) chain.first = after else @field(slab.at(before), next) = after;
            if (after == NONE) chain.last = before else @field(slab.at(after), previous) = before;
            chain.count -= 1;
        }
    };
}

/// The lowest key first. Entries that became invalid stay until `trim`.
pub const Heap = struct {
    const Entry = struct { key: i64, ordinal: i64, place: u32 };

    entries: std.ArrayList(Entry) = .empty,

    pub fn top(heap: *const Heap) ?Entry {
        return if (heap.entries.items.len == 0) null else heap.entries.items[0];
    }

    pub fn push(heap: *Heap, gpa: Allocator, key: i64, ordinal: i64, place: u32) void {
        heap.entries.append(gpa, .{ .key = key, .ordinal = ordinal, .place = place }) catch exhausted();
        heap.rise(heap.entries.items.len - 1);
    }

    pub fn pop(heap: *Heap) Entry {
        const found = heap.entries.swapRemove(0);
        if (heap.entries.items.len != 0) heap.sink(0);
        return found;
    }

    /// Keeps the valid ones, if there are many others: `count` are known to be valid.
    pub fn trim(heap: *Heap, count: usize, context: anytype) void {
        if (heap.entries.items.len <= 2 * count + 64) return;
        var kept: usize = 0;
        for (heap.entries.items) |one| if (context.isValid(one.ordinal, one.place)) {
            heap.entries.items[kept] = one;
            kept += 1;
        };
        heap.entries.shrinkRetainingCapacity(kept);
        var i = kept / 2;
        while (i > 0) {
            i -= 1;
            heap.sink(i);
        }
    }

    pub fn free(heap: *Heap, gpa: Allocator) void {
        heap.entries.clearAndFree(gpa);
    }

    fn before(a: Entry, b: Entry) bool {
        return if (a.key != b.key) a.key < b.key else a.ordinal < b.ordinal;
    }

    fn rise(heap: *Heap, from: usize) void {
        const entries = heap.entries.items;
        var i = from;
        while (i > 0 and before(entries[i], entries[(i - 1) / 2])) : (i = (i - 1) / 2) {
            std.mem.swap(Entry, &entries[i], &entries[(i - 1) / 2]);
        }
    }

    fn sink(heap: *Heap, from: usize) void {
        const entries = heap.entries.items;
        var i = from;
        while (2 * i + 1 < entries.len) {
            var child = 2 * i + 1;
            if (child + 1 < entries.len and before(entries[child + 1], entries[child])) child += 1;
            if (!before(entries[child], entries[i])) return;
            std.mem.swap(Entry, &entries[i], &entries[child]);
            i = child;
        }
    }
};

/// Records by a number from the wire (their field `id`), which a secret hashes: nobody can choose numbers that share a
/// place. A removed record leaves no trace.
pub fn Index(comptime T: type) type {
    return struct {
        const Self = @This();
        const Entry = struct { record: T, next: u32 };
        /// A state does not have it: it is made again.
        pub const derived = true;

        slab: Slab(Entry) = .{},
        heads: std.ArrayList(u32) = .empty,
        count: usize = 0,
        secret: u64 = 0,

        fn place(index: *const Self, id: i32) usize {
            const mixed = @as(u128, @as(u32, @bitCast(id)) ^ index.secret) * (index.secret | 1);
            const folded = @as(u64, @truncate(mixed)) ^ @as(u64, @truncate(mixed >> 64));
            return folded & (index.heads.items.len - 1);
        }

        pub fn find(index: *const Self, id: i32) ?*T {
            if (index.count == 0) return null;
            var at = index.heads.items[index.place(id)];
            while (at != NONE) : (at = index.slab.at(at).next) {
                if (index.slab.at(at).record.id == id) return &index.slab.at(at).record;
            }
            return null;
        }

        /// The record of this number, which is made if there is none. Valid until the next record is made.
        pub fn get(index: *Self, gpa: Allocator, id: i32) *T {
            if (index.find(id)) |found| return found;
            if (index.count == index.heads.items.len) index.grow(gpa);
            const made = index.slab.add(gpa, .{ .record = .{ .id = id }, .next = NONE });
            index.link(made);
            index.count += 1;
            return &index.slab.at(made).record;
        }

        fn link(index: *Self, entry: u32) void {
            const head = &index.heads.items[index.place(index.slab.at(entry).record.id)];
            index.slab.at(entry).next = head.*;
            head.* = entry;
        }

        fn grow(index: *Self, gpa: Allocator) void {
            var every: std.ArrayList(u32) = .empty;
            defer every.deinit(gpa);
            for (index.heads.items) |head| {
                var at = head;
                while (at != NONE) : (at = index.slab.at(at).next) every.append(gpa, at) catch exhausted();
            }
            index.heads.resize(gpa, @max(8, 2 * index.heads.items.len)) catch exhausted();
            @memset(index.heads.items, NONE);
            for (every.items) |entry| index.link(entry);
        }

        pub fn remove(index: *Self, gpa: Allocator, id: i32) void {
            var at = &index.heads.items[index.place(id)];
            while (index.slab.at(at.*).record.id != id) at = &index.slab.at(at.*).next;
            const found = at.*;
            at.* = index.slab.at(found).next;
            index.slab.remove(gpa, found);
            index.count -= 1;
        }

        pub fn free(index: *Self, gpa: Allocator) void {
            index.slab.free(gpa);
            index.heads.clearAndFree(gpa);
            index.count = 0;
        }
    };
}
