//! When the broker could take up the requests of a connection: which of them waited for others, or for a quota.
//!
//! A broker processes the requests of a connection one by one. After a throttled response it reads nothing for the
//! throttle time (KIP-219); brokers before Kafka 2.0 held the response back instead.

const NO_TIME = @import("stream_types.zig").NO_TIME;

pub const Waited = struct { behind: i64 = NO_TIME, muted: i64 = NO_TIME };

pub const Turns = struct {
    /// The last response was complete, with or without its request.
    answered: i64 = NO_TIME,
    /// Until then a response asked the client to send nothing.
    muted_until: i64 = NO_TIME,

    /// Takes the exchanges of a connection in the order in which they end; returns how long the request waited for
    /// earlier ones, and how long a quota delayed it or its response.
    ///
    /// `asked`, `done`: when the request and the response were complete; `throttle`: nanoseconds of the response's
    /// throttle time; `at_once`: brokers that throttle answer immediately.
    pub fn answer(turns: *Turns, asked: i64, done: i64, latency: i64, throttle: i64, at_once: bool) Waited {
        const begun = asked +| latency;
        const answered = turns.answered;
        turns.answered = @max(answered, done);
        var behind: i64 = 0;
        var muted: i64 = 0;
        if (answered > asked) behind = @max(@min(answered, begun) -| asked, 0);
        if (turns.muted_until != NO_TIME) muted = @max(@min(turns.muted_until, begun) -| asked -| behind, 0);
        if (throttle == 0) return .{ .behind = behind, .muted = muted };
        if (!at_once and latency -| behind -| muted >= throttle) {
            muted +|= throttle;
        } else turns.muted_until = @max(turns.muted_until, begun +| throttle);
        return .{ .behind = behind, .muted = muted };
    }
};
