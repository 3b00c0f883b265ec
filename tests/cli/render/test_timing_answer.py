"""The aggregate of timings: groups, the slowest exchanges, and caveats."""

from __future__ import annotations

from kafkasniff.analysis.timing import Timing, TimingParameters
from kafkasniff.cli.render.timing_answer import TimingAnswer
from kafkasniff.enrich import Catalog
from kafkasniff.timing import Timed
from tests.cli.commands.test_timing import packets
from tests.craft import kafka_bytes as kafka
from tests.timing.test_exchanges import of
from tests.timing.timeline import Timeline

EXCHANGES = of(packets())


def collected(timed: list[Timed], *, slowest: int = 3, by: tuple[str, ...] = ("api",)) -> TimingAnswer:
    answer = TimingAnswer(Timing(TimingParameters(by=by)), slowest=slowest)
    answer.take(timed)
    answer.close(Catalog())
    return answer


def test_among_equally_slow_ones_the_first_wins() -> None:
    line = Timeline()
    line.open(4, 0.01)
    for number in range(5):
        line.data("client", 100 * number + 10, kafka.metadata_request(number, ["orders"]))
        line.data("broker", 100 * number + 20, kafka.metadata_response(number, "h", 9092, ["orders"]))
    assert [one.exchange.exchange for one in collected(of(line.packets)).slowest] == [1, 2, 3]


def test_caveats() -> None:
    answer = collected(EXCHANGES)
    assert answer.notes() == []
    answer.exports, answer.no_bodies, answer.loss = 1, 1, "more than 1 MiB of memory"
    answer.close(Catalog())
    notes = " | ".join(answer.notes())
    assert "think times and network times are unknown" in notes
    assert "count as broker time" in notes
    assert "more than 1 MiB of memory" in notes
