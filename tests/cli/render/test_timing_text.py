"""The screen of `timing`: shares of time by group, and the slowest exchanges."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.analysis.timing import Timing, TimingParameters
from kafkasniff.cli.environment import Exit
from kafkasniff.cli.render import timing_text as timing_text_module
from kafkasniff.cli.render.timing_answer import TimingAnswer
from kafkasniff.cli.render.timing_text import timing_text
from kafkasniff.enrich import Catalog
from kafkasniff.text.printable import display_width
from tests.cli.commands.test_timing import packets
from tests.cli.console import kafkasniff
from tests.craft.write import write_pcap
from tests.timing.test_exchanges import of


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pcap(tmp_path_factory.mktemp("timing") / "slow.pcap", packets(), nanoseconds=True)


def test_the_screen(slow: Path) -> None:
    result = kafkasniff("timing", slow, "--slowest", "1", width=110)
    assert result.code == Exit.OK
    assert result.lines[1:] == [
        "5 exchanges, 5 of them timed: 904 ms in total",
        "captured: 2 connections, 1 near the client, 1 near the broker",
        "round trips from there, by handshakes: to brokers 20.0 µs to 4.00 ms, to clients 10.0 µs to 30.0 ms",
        "",
        "Shares of the time from the first byte of requests to the last byte of responses",
        "  API       count      p50     p99     max  request  queued  network  requested  broker  client p50",
        "  Fetch         1   506 ms  506 ms  506 ms                       <1%        99%     <1%     10.0 ms",
        "  Metadata      4  14.0 ms  349 ms  350 ms      13%      4%       3%                81%      100 ms",
        "",
        "Slowest exchanges, not counting requested waits (--exchange N)",
        "  exchange  what                      time  most of it",
        "        #5  Metadata v1 of crafted  350 ms  the broker 300 ms",
    ]


def collected(by: tuple[str, ...] = ("api",), slowest: int = 2) -> TimingAnswer:
    answer = TimingAnswer(Timing(TimingParameters(by=by)), slowest=slowest)
    answer.take(of(packets()))
    answer.close(Catalog(), forgotten=0)
    return answer


def shown(answer: TimingAnswer, width: int = 110, *, coloured: bool = False) -> list[str]:
    return timing_text(answer, "4 captures", width=width, coloured=coloured).splitlines()


def test_the_first_line_names_the_sources() -> None:
    assert shown(collected())[0] == "4 captures"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_it_fits_the_terminal(width: int) -> None:
    lines = shown(collected(("api", "broker", "client")), width)
    assert max(map(display_width, lines)) <= width


def test_only_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_text_module, "MAX_ROWS", 1)
    assert "  and 1 more (--format json)" in shown(collected())


def test_nothing_to_show() -> None:
    answer = TimingAnswer(Timing(TimingParameters(by=("api",))), slowest=3)
    answer.close(Catalog(), forgotten=0)
    assert shown(answer) == ["4 captures", "0 exchanges, 0 of them timed: 0 ns in total"]


def test_connections_have_the_numbers_of_decode() -> None:
    lines = shown(collected(("connection",)))
    assert [line.split()[:2] for line in lines if line.startswith("  conn ")] == [["conn", "1"], ["conn", "2"]]


def test_colours_only_if_asked_for() -> None:
    assert "\x1b" not in "".join(shown(collected()))
    assert "\x1b" in "".join(shown(collected(), coloured=True))
