"""Key logs: their secrets, the reports about invalid lines, and when a secret counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tls import keylog
from kafkasniff.tls.keylog import KeyLog
from tests.tls.reading import keys

RANDOM = bytes(range(32))
SECRET = b"\x5a" * 48
LINE = f"CLIENT_RANDOM {RANDOM.hex()} {SECRET.hex()}\n".encode()


def test_lines_of_every_kind() -> None:
    found = keys(
        b"\xef\xbb\xbf# SSL/TLS secrets log file\r\n\r\n"
        + LINE.replace(b"\n", b"\r\n")
        + b"SERVER_TRAFFIC_SECRET_0 "
        + RANDOM.hex().upper().encode()
        + b" "
        + b"ab" * 32
        + b"\n"
        + b"EXPORTER_SECRET "
        + RANDOM.hex().encode()
        + b" "
        + b"cd" * 32
        + b"\n"
        + b"RSA 0011223344556677 8899\n"
        + b"RSA Session-ID:0a0B Master-Key:"
        + b"ef" * 48
        + b"\n"
    )
    assert found.find("CLIENT_RANDOM", RANDOM, 0) == SECRET
    assert found.find("SERVER_TRAFFIC_SECRET_0", RANDOM, 0) == b"\xab" * 32
    assert found.find(keylog.SESSION_ID, b"\x0a\x0b", 0) == b"\xef" * 48
    assert found.find("CLIENT_TRAFFIC_SECRET_0", RANDOM, 0) is None
    assert found.find("CLIENT_RANDOM", bytes(32), 0) is None
    assert found.take_flaws() == []


def test_the_last_line_need_not_end() -> None:
    assert keys(LINE[:-1]).find("CLIENT_RANDOM", RANDOM, 0) == SECRET


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"hello", "is not LABEL CLIENT_RANDOM SECRET"),
        (LINE[:-2], "odd number"),
        (LINE.replace(RANDOM.hex().encode(), b"00"), "client random of 1 bytes, not 32"),
        (LINE[:-3], "secret of 47 bytes"),
        (b"x" * 5000, "longer than any valid line"),
        (b"RSA Session-ID: Master-Key:" + b"ab" * 48, "empty session id"),
        (b"RSA Session-ID:" + b"00" * 33 + b" Master-Key:" + b"ab" * 48, "session id of 33 bytes"),
        (b"RSA Session-ID:00 Master-Key:" + b"ab" * 32, "master key of 32 bytes, not 48"),
    ],
)
def test_bad_lines_are_reported_by_number_and_without_their_text(line: bytes, expected: str) -> None:
    found = keys(LINE + line + b"\n" + LINE)
    (flaw,) = found.take_flaws()
    assert flaw.startswith("line 2 of the key log ")
    assert expected in flaw
    assert SECRET.hex()[:20] not in flaw
    assert found.find("CLIENT_RANDOM", RANDOM, 0) == SECRET
    assert found.take_flaws() == []


def test_invalid_lines_of_a_file_are_counted() -> None:
    found = keys(b"no\n" * 1000)
    flaws = found.take_flaws()
    assert len(flaws) == keylog.MAX_FLAWS + 1
    assert flaws[-1] == f"{1000 - keylog.MAX_FLAWS} more lines are invalid"
    assert found.take_flaws() == []


def test_a_growing_file_of_garbage_is_counted_at_each_doubling() -> None:
    waiting: list[bytes] = []
    found = KeyLog(lambda: waiting.pop() if waiting else b"", grows=True)
    counts = []
    for _ in range(1000):
        waiting.append(b"no\n")
        found.find("CLIENT_RANDOM", RANDOM, 0)
        counts += [flaw.split()[0] for flaw in found.take_flaws() if "more lines" in flaw]
    assert counts == ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512"]


@given(st.lists(st.integers(1, 60), max_size=12))
def test_a_growing_file_gives_the_same_as_the_whole_file(cuts: list[int]) -> None:
    data = LINE + b"bad\n" + LINE.replace(b"CLIENT_RANDOM", b"SERVER_TRAFFIC_SECRET_0")
    parts, at = [], 0
    for cut in cuts:
        parts.append(data[at : at + cut])
        at += cut
    parts.append(data[at:])
    waiting: list[bytes] = []
    found = KeyLog(lambda: waiting.pop() if waiting else b"", grows=True)
    for part in parts:
        if part:
            waiting.append(part)
        found.find("CLIENT_RANDOM", bytes(32), 0)
    assert found.find("CLIENT_RANDOM", RANDOM, 0) == SECRET
    assert found.find("SERVER_TRAFFIC_SECRET_0", RANDOM, 0) == SECRET
    assert found.take_flaws() == ["line 2 of the key log is not LABEL CLIENT_RANDOM SECRET"]


def test_secrets_of_a_capture_count_from_their_place() -> None:
    found = KeyLog()
    assert not found.may_come(10**9)
    found.add_captured(LINE, 100)
    assert found.find("CLIENT_RANDOM", RANDOM, 99) is None
    assert not found.may_come(99)
    assert found.find("CLIENT_RANDOM", RANDOM, 100) == SECRET
    assert found.may_come(100)
    found.add_captured(LINE, 200)
    assert found.find("CLIENT_RANDOM", RANDOM, 100) == SECRET


def test_a_state_has_secrets_of_captures_but_not_of_the_file() -> None:
    other = bytes(32)
    found = keys(LINE)
    found.add_captured(LINE.replace(RANDOM.hex().encode(), other.hex().encode()), 5)
    state = dump(found)
    assert RANDOM not in state
    again = load(state, KeyLog)
    assert again.find("CLIENT_RANDOM", RANDOM, 9) is None
    assert again.find("CLIENT_RANDOM", other, 9) == SECRET
    assert again.find("CLIENT_RANDOM", other, 4) is None


def test_secrets_of_another_log_are_merged_with_their_places() -> None:
    first, second = KeyLog(), KeyLog()
    first.add_captured(LINE, 50)
    second.add_captured(LINE, 20)
    first.absorb(second)
    assert first.find("CLIENT_RANDOM", RANDOM, 20) == SECRET
    assert first.find("CLIENT_RANDOM", RANDOM, 19) is None


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keylog, "MAX_SECRETS", 3)

    def line(number: int) -> bytes:
        return LINE.replace(RANDOM.hex().encode(), number.to_bytes(32).hex().encode())

    log = b"".join(line(number) for number in range(5))
    found = keys(log)
    assert [found.find("CLIENT_RANDOM", number.to_bytes(32), 0) is not None for number in range(5)] == [
        False, False, True, True, True,
    ]  # fmt: skip
    captured = KeyLog()
    captured.add_captured(log, 0)
    assert [captured.find("CLIENT_RANDOM", number.to_bytes(32), 0) is not None for number in range(5)] == [
        True, True, True, False, False,
    ]  # fmt: skip


@given(st.binary(max_size=400))
def test_garbage_never_raises(data: bytes) -> None:
    found = keys(data)
    found.add_captured(data, 0)
    found.take_flaws()
