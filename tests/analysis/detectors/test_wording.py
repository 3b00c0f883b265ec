"""Numbers and quotations in findings as people read them."""

from __future__ import annotations

from kafkasniff.analysis.detectors.wording import MAX_QUOTE, elapsed, percent, quoted, shortened

SECOND = 1_000_000_000


def test_durations_have_two_digits_or_two_units() -> None:
    expected = {
        **{0: "0 ns", 999: "999 ns", 1_000: "1 µs", 9_940: "9.9 µs", 9_960: "10 µs", 999_499: "999 µs"},
        **{999_500: "1 ms", 80_200_000: "80 ms", -80_200_000: "-80 ms", 1_870_000_000: "1.9 s", 4 * SECOND: "4 s"},
        **{13_700_000_000: "14 s", 119 * SECOND: "119 s", 119_600_000_000: "2 min", 200 * SECOND: "3 min 20 s"},
        **{3599_600_000_000: "1 h", 18_120 * SECOND: "5 h 2 min", 86_399 * SECOND: "1 d", 360_000 * SECOND: "4 d 4 h"},
    }
    assert {nanoseconds: elapsed(nanoseconds) for nanoseconds in expected} == expected


def test_shares_are_never_all_or_nothing_by_rounding() -> None:
    expected = {0: "0%", 0.0001: "<0.1%", 0.0042: "0.4%", 0.374: "37%", 0.994: "99%", 0.9999: ">99%", 1: "100%"}
    assert {share: percent(share) for share in expected} == expected


def test_quotations_are_safe_and_cut_after_a_word() -> None:
    assert quoted(" Topic 'a' already exists. ") == "\"Topic 'a' already exists.\""
    assert quoted("red\x1b[31m\u202e") == '"red\\x1b[31m\\u202e"'
    reported = quoted("word " * 100)
    assert reported == f'"{"word " * 59}word… +200"'
    assert quoted("x" * 4000) == f'"{"x" * MAX_QUOTE}… +3,700"'
    assert quoted("x" * (MAX_QUOTE + 5)) == f'"{"x" * (MAX_QUOTE + 5)}"'
    assert shortened(shortened("word " * 100)) == shortened("word " * 100)
    assert quoted({"redacted": 12}) == "[12 bytes redacted]"
