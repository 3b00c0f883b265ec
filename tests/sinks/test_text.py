"""Lines of text, their columns, and how they are written and fit terminals; `test_events.py` has their content."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.model import Endpoint, ErrorCode, Problem, SaslToken
from kafkasniff.sinks import text as module
from kafkasniff.sinks.lines import MAX_LINE, MIN_SUMMARY, TerminalOutput, TextWriter, folded
from kafkasniff.sinks.text import CLIENT_WIDTH, NAME_WIDTH, EncodedOutput, EndsTexts, TextSink
from kafkasniff.text.printable import PLAIN, display_width
from kafkasniff.text.times import clock_time
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.sinks.messages import PRODUCED, TIME_NS, message


def text(*events: Any, **options: Any) -> str:
    stream = io.BytesIO()
    sink = TextSink(stream, **options)
    for event in events:
        sink.write(event)
    sink.close()
    return stream.getvalue().decode(options.get("encoding", "utf-8"))


def test_the_clock_goes_on_whatever_the_order_of_times() -> None:
    second = 1_000_000_000
    times = [TIME_NS + one for one in (0, 1_000, 999_000, 1_000_000, second, 61 * second, -1_000, -3600 * second, 0)]
    times += [0, 999, -1, -second, 253_402_300_800 * second]
    shown = [line for line in text(*(message(time_ns=one) for one in times)).splitlines() if "UTC" not in line]
    assert [line[:15] for line in shown] == [clock_time(one) for one in times]
    dates = [line for line in text(*(message(time_ns=one) for one in (0, -1, 0))).splitlines() if "UTC" in line]
    assert dates == ["1970-01-01 UTC", "1969-12-31 UTC", "1970-01-01 UTC"]


def test_nothing_from_the_wire_reaches_the_terminal_as_it_is() -> None:
    evil = "\x1b]0;owned\x07\u202e\r\n\x9b2J"
    body = {
        "transactional_id": evil,
        "acks": 1,
        "timeout_ms": 0,
        "topic_data": [{"name": evil, "partition_data": [{"index": 0, "records": None}]}],
    }
    reported = {**PRODUCED, "responses": [{"name": evil, "partition_responses": [{"index": 0, "error_code": 7,
            "error_message": evil}]}]}  # fmt: skip
    error = ErrorCode(7, "REQUEST_TIMED_OUT", "responses[0].partition_responses[0].error_code")
    events = [
        message(client_id=evil, body=body, problems=(Problem("x", evil),)),
        message("response", body=reported, errors=(error,)),
        message(body={evil: evil, "list": [evil], "deep": [{evil: {evil: evil.encode()}}]}, raw=evil.encode()),
        message(client_id=evil.encode() + b"\xff", capture=evil),
        Problem("y", evil, capture=evil),
        SaslToken("request", 4, evil, evil.encode()),
    ]
    for verbosity in (0, 1, 2):
        shown = text(*events, verbosity=verbosity, captures=True)
        assert all(line.isprintable() for line in shown.split("\n"))
        assert "\\x1b]0;owned\\x07\\u202e\\x0d\\x0a\\x9b2J" in shown


def test_a_hostile_client_id_cannot_widen_its_column_without_bound() -> None:
    line = text(message(client_id="\x1b" * 5000)).splitlines()[1]
    assert len(line) < 140 + 2 * CLIENT_WIDTH


ONE_END, OTHER_END = Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.2", 9092)
ARROWS = ("→", "←")


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_CACHE", 5)
    ends = EndsTexts({}, PLAIN, ARROWS)
    for number in range(50):
        ends.of(number, ONE_END, OTHER_END)
        assert len(ends.ready) <= 5
    assert ends.cleared >= 9
    named = EndsTexts({"10.0.0.1": "n" * 500, "10.0.0.2:9092": "kafka-1"}, PLAIN, ARROWS)
    text = named.of(1, ONE_END, OTHER_END)[2].partition("\x1f")[0]
    assert text == f"{'n' * NAME_WIDTH}… +{500 - NAME_WIDTH}:50000 → kafka-1:9092"


class Stream:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.flushes = 0

    def write(self, data: bytes | memoryview) -> None:
        self.writes.append(bytes(data))

    def flush(self) -> None:
        self.flushes += 1


def test_text_is_encoded_in_blocks_and_whole() -> None:
    stream = Stream()
    writer = TextWriter(stream)
    line = "→" * 499
    for _ in range(200):
        writer.add(line)
    assert len(stream.writes) == 1
    writer.flush()
    assert b"".join(stream.writes) == f"{line}\n".encode() * 200
    assert all(block.endswith(b"\n") for block in stream.writes)
    writer.flush()
    assert len(stream.writes) == 2
    assert stream.flushes == 3


def test_what_an_encoding_has_no_bytes_for_is_escaped() -> None:
    stream = Stream()
    writer = TextWriter(EncodedOutput(stream, "latin-1"))
    writer.add("µ→")
    writer.add("\udcff")
    writer.flush()
    assert stream.writes == [b"\xb5\\u2192\n\\udcff\n"]


# -- terminals ---------------------------------------------------------------------------------------------------------


CAPTURE = ROOT / "captures" / "java-group-consumer.pcap"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HEAD = "07:10:32.807741  127.0.0.1:54992 → 127.0.0.1:32925  Produce v13  #9  corr 5  "
WORDS = st.text("ab→Ü漢:, ", max_size=60)


def words(text: str) -> str:
    """The text without spaces, line ends and colours."""
    return COLOUR.sub("", "".join(text.split()))


@given(
    st.sampled_from(["", HEAD, " " * 17, " " * 6, "    \x1b[2mname\x1b[0m: "]), st.lists(WORDS), st.integers(20, 200)
)
@example("", ["漢" * 40], 20)
def test_pieces_fit_and_have_all_words(head: str, parts: list[str], width: int) -> None:
    line = head + "  ".join(parts)
    pieces = list(folded(line, width))
    assert words("".join(pieces)) == words(line)
    assert all(display_width(COLOUR.sub("", piece)) <= width for piece in pieces)


SUMMARY = "one two three one two three"


@pytest.mark.parametrize(
    ("line", "width", "pieces"),
    [
        (HEAD + "漢x", len(HEAD) + 3, [HEAD + "漢x"]),
        # A summary with room continues below itself, one without below the ends, and a body deeper than it begins.
        (HEAD + SUMMARY, len(HEAD) + MIN_SUMMARY, [HEAD + SUMMARY]),
        (
            f"{HEAD}{SUMMARY} {SUMMARY}",
            len(HEAD) + MIN_SUMMARY,
            [f"{HEAD}{SUMMARY} one two", " " * len(HEAD) + "three one two three"],
        ),
        (HEAD + "  client      one two three", len(HEAD) + 8, [HEAD + "  client", " " * 17 + "one two three"]),
        ("  name: one two three", 16, ["  name: one two", "      three"]),
    ],
)
def test_where_lines_continue(line: str, width: int, pieces: list[str]) -> None:
    assert list(folded(line, width)) == pieces


def test_colours_stay_where_they_are() -> None:
    first, second = folded(HEAD + "\x1b[31mERROR_NAME\x1b[0m word word", len(HEAD) - 1)
    assert COLOUR.sub("", first).rstrip() == HEAD.rstrip()
    assert words(second) == "ERROR_NAMEwordword"
    assert COLOUR.findall(first + second) == ["\x1b[31m", "\x1b[0m"]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_listing_fits_and_says_what_a_file_has(width: int, options: tuple[str, ...]) -> None:
    listing = kafkasniff("decode", "-q", *options, CAPTURE, stdout_tty=True, width=width, environ={"NO_COLOR": "1"})
    assert max(map(display_width, listing.text.splitlines())) <= width
    if not options:  # bodies choose their lines by the width
        assert words(listing.text) == words(kafkasniff("decode", "-q", CAPTURE).text)


def test_a_piece_of_payload_is_not_folded() -> None:
    stream = io.BytesIO()
    piece = b"x" * (MAX_LINE + 1)
    TerminalOutput(stream, 80, "utf-8").write(piece + b"\n" + b"y" * 81)
    assert stream.getvalue().splitlines() == [piece, b"y" * 80, b"    y"]
