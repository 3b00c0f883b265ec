"""Lines of text, their columns, and how they are written and fit terminals; `test_events.py` has their content."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.model import Endpoint
from kafkasniff.sinks.lines import TextWriter, folded
from kafkasniff.sinks.text import TextSink
from kafkasniff.text.printable import display_width
from kafkasniff.text.times import clock_time
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.sinks.messages import TIME_NS, message


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


ONE_END, OTHER_END = Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.2", 9092)


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


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_listing_fits_and_says_what_a_file_has(width: int, options: tuple[str, ...]) -> None:
    listing = kafkasniff("decode", "-q", *options, CAPTURE, stdout_tty=True, width=width, environ={"NO_COLOR": "1"})
    assert max(map(display_width, listing.text.splitlines())) <= width
    if not options:  # bodies choose their lines by the width
        assert words(listing.text) == words(kafkasniff("decode", "-q", CAPTURE).text)
