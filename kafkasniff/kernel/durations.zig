//! Durations as text. The specification is `kafkasniff/text/times.py`.

const Error = @import("reader.zig").Error;

/// A duration in three digits and a unit; 1000 s and more are `Odd`.
pub const Duration = struct {
    bytes: [16]u8,
    size: usize,
    /// In columns.
    width: usize,

    pub fn of(nanoseconds: i64) Error!Duration {
        const unit: Unit = switch (@abs(nanoseconds)) {
            0...999 => .{ .text = " ns", .width = 3, .divisor = 0 },
            1_000...999_499 => .{ .text = " µs", .width = 3, .divisor = 1e3 },
            999_500...999_499_999 => .{ .text = " ms", .width = 3, .divisor = 1e6 },
            999_500_000...999_499_999_999 => .{ .text = " s", .width = 2, .divisor = 1e9 },
            else => return error.Odd,
        };
        var found: Duration = .{ .bytes = undefined, .size = @intFromBool(nanoseconds < 0), .width = undefined };
        found.bytes[0] = '-';
        var room: [8]u8 = undefined;
        const digits = unit.digits(&room, @abs(nanoseconds));
        @memcpy(found.bytes[found.size..][0..digits.len], digits);
        found.size += digits.len;
        found.width = found.size + unit.width;
        @memcpy(found.bytes[found.size..][0..unit.text.len], unit.text);
        found.size += unit.text.len;
        return found;
    }
};

const Unit = struct {
    text: []const u8,
    width: usize,
    divisor: f64,

    fn digits(self: *const Unit, room: *[8]u8, nanoseconds: u64) []const u8 {
        if (self.divisor == 0) return whole(room, nanoseconds, 0);
        const value = @as(f64, @floatFromInt(nanoseconds)) / self.divisor;
        const decimals: usize = if (value < 9.995) 2 else if (value < 99.95) 1 else 0;
        // Rounded as Python rounds: by the exact value, half to even.
        const bits: u64 = @bitCast(value);
        const shift: u7 = @intCast(1075 - (bits >> 52));
        const fraction = (bits & ((1 << 52) - 1)) | 1 << 52;
        const product = @as(u128, fraction) * ([_]u128{ 1, 10, 100 })[decimals];
        var result: u64 = @intCast(product >> shift);
        const rest = product & ((@as(u128, 1) << shift) - 1);
        const half = @as(u128, 1) << (shift - 1);
        if (rest > half or (rest == half and result % 2 == 1)) result += 1;
        return whole(room, result, decimals);
    }

    /// A number whose last digits follow the decimal point.
    fn whole(room: *[8]u8, value: u64, decimals: usize) []const u8 {
        var first: usize = room.len;
        var rest = value;
        var place: usize = 0;
        while (rest > 0 or place <= decimals) : (place += 1) {
            if (place == decimals and decimals > 0) {
                first -= 1;
                room[first] = '.';
            }
            first -= 1;
            room[first] = '0' + @as(u8, @intCast(rest % 10));
            rest /= 10;
        }
        return room[first..];
    }
};
