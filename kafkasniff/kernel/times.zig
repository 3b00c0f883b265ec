//! Times as text. The specification is `kafkasniff/text/times.py`.

const std = @import("std");

const SECOND = 1_000_000_000;
const DAY = 86_400;

/// Writes a number with this many digits.
pub inline fn write(comptime count: usize, to: *[count]u8, value: u32) void {
    var rest = value;
    comptime var at = count;
    inline while (at > 1) {
        at -= 2;
        to[at..][0..2].* = pair(@intCast(rest % 100));
        rest /= 100;
    }
    if (at == 1) to[0] = '0' + @as(u8, @intCast(rest % 10));
}

/// Writes a number to the end of `to`; returns where it begins.
pub fn decimal(to: *[20]u8, value: i64) usize {
    var first: usize = to.len;
    var rest: u64 = @abs(value);
    while (rest >= 100) : (rest /= 100) {
        first -= 2;
        to[first..][0..2].* = pair(@intCast(rest % 100));
    }
    if (rest >= 10) {
        first -= 2;
        to[first..][0..2].* = pair(@intCast(rest));
    } else {
        first -= 1;
        to[first] = '0' + @as(u8, @intCast(rest));
    }
    if (value < 0) {
        first -= 1;
        to[first] = '-';
    }
    return first;
}

const PAIRS = pairs: {
    var found: [100][2]u8 = undefined;
    for (&found, 0..) |*one, value| one.* = .{ '0' + value / 10, '0' + value % 10 };
    break :pairs found;
};

inline fn pair(value: u8) [2]u8 {
    return PAIRS[value];
}

/// The text of a time. Consecutive times often share their second, whose text is kept.
pub const Moment = struct {
    second: i64 = std.math.minInt(i64),
    text: [30]u8 = undefined,

    /// Nanoseconds since 1970 as `2026-11-21T04:00:00.123456789Z`; valid until the next one is asked for.
    pub fn rfc3339(self: *Moment, time: i64) *const [30]u8 {
        _ = self.ofSecond(@divFloor(time, SECOND));
        write(9, self.text[20..29], @intCast(@mod(time, SECOND)));
        return &self.text;
    }

    /// The same for a second of the years 1600 to 9999; its fraction is undefined.
    pub fn ofSecond(self: *Moment, second: i64) *const [30]u8 {
        if (second != self.second) self.set(second);
        return &self.text;
    }

    fn set(self: *Moment, second: i64) void {
        self.second = second;
        const date = Date.of(@divFloor(second, DAY));
        const rest: u32 = @intCast(@mod(second, DAY));
        const text = &self.text;
        write(4, text[0..4], date.year);
        text[4] = '-';
        write(2, text[5..7], date.month);
        text[7] = '-';
        write(2, text[8..10], date.day);
        text[10] = 'T';
        write(2, text[11..13], rest / 3600);
        text[13] = ':';
        write(2, text[14..16], rest / 60 % 60);
        text[16] = ':';
        write(2, text[17..19], rest % 60);
        text[19] = '.';
        text[29] = 'Z';
    }
};

const Date = struct {
    year: u32,
    month: u32,
    day: u32,

    /// Days of 400 years, after which the calendar repeats itself; from 1600-03-01 to 1970-01-01 there are `BEFORE`.
    const CYCLE = 146_097;
    const BEFORE = 135_080;

    /// The date this many days after 1970-01-01. Times of 64 bits are between the years 1677 and 2262.
    fn of(days: i64) Date {
        // Years that begin in March end with the leap day.
        const since: u32 = @intCast(days + BEFORE);
        const in_cycle = since % CYCLE;
        const year = (in_cycle - in_cycle / 1460 + in_cycle / 36_524 - in_cycle / (CYCLE - 1)) / 365;
        const in_year = in_cycle - (365 * year + year / 4 - year / 100);
        // Months from March on: 153 days in five of them.
        const month = (5 * in_year + 2) / 153;
        return .{
            .year = 1600 + 400 * (since / CYCLE) + year + @intFromBool(month >= 10),
            .month = if (month < 10) month + 3 else month - 9,
            .day = in_year - (153 * month + 2) / 5 + 1,
        };
    }
};
