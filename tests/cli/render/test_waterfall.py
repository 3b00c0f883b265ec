"""One exchange as a waterfall: its parts in order, its network, and what is unknown."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import msgspec
import pytest

from kafkasniff.cli.render.waterfall import MAX_BAR, MIN_BAR, exchange_object, largest, waterfall, who
from kafkasniff.timing import Timed
from tests.cli.commands.test_timing import packets
from tests.cli.console import kafkasniff
from tests.craft import kafka_bytes as kafka
from tests.craft.write import write_pcap
from tests.timing.test_exchanges import of
from tests.timing.timeline import Timeline


def test_a_loss_and_a_client_that_stops_reading(tmp_path: Path) -> None:
    line = Timeline()
    line.open(4, 0.01)
    asked = line.data("client", 10, kafka.metadata_request(1, ["orders"]))
    line.add(220, asked.but(ident=900))
    response = kafka.metadata_response(1, "10.0.0.9", 9092, ["orders"])
    line.data("broker", 230, response[:20])
    line.window = 0
    line.acked("client", 231)
    line.window = 1000
    line.acked("client", 430)
    line.data("broker", 434, response[20:])
    result = kafkasniff("timing", write_pcap(tmp_path / "loss.pcap", line.packets), "--exchange", "1", width=80)
    assert result.lines[3:13] == [
        "",
        "    210 ms  ████████··········  lost: until it was retransmitted",
        "   4.00 ms  ········█·········  network: to the broker and back, at least",
        "   6.00 ms  ·········█········  broker",
        f"    204 ms  ·········█████████  response, first to last byte, {len(response)} bytes",
        "",
        "captured near the client; minimum round trips to broker 4.00 ms, client 10.0 µs",
        "client: 1 segment retransmitted (lost after the capture point, or acknowledged",
        "    late)",
        "client: zero window 1 time, for 199 ms: it accepted no more data",
    ]


def exchanges() -> list[Timed]:
    return of(packets())


@pytest.mark.parametrize("width", [20, 60, 80, 100, 200])
def test_bars_follow_one_another(width: int) -> None:
    """Each begins where the previous one ends, and all are as wide as the screen allows."""
    for one in exchanges():
        bars = re.findall("[·█]+", waterfall(one, width, coloured=False))
        columns = {len(bar) for bar in bars}
        assert len(columns) == 1
        assert MIN_BAR <= columns.pop() <= MAX_BAR
        for before, after in itertools.pairwise(bars):
            assert after.index("█") <= before.rindex("█") + 1
        assert bars[0].startswith("█")
        assert bars[-1].endswith("█")


def test_an_exchange_without_a_response() -> None:
    line = Timeline()
    line.open(4, 0.01)
    line.data("client", 10, kafka.metadata_request(1, ["orders"]))
    (one,) = of(line.packets)
    lines = waterfall(one, 80, coloured=False).splitlines()
    assert lines[2].endswith("open")
    assert "  there is no response, or a time is missing: no breakdown" in lines
    assert "█" not in "".join(lines)
    assert largest(one) == ""
    found = exchange_object(one)
    assert (found["status"], found["duration_us"], found["latency_us"]) == ("open", None, None)
    assert found["unknown"] == ["response"]


def test_names_from_the_wire_are_escaped() -> None:
    (one, *_) = exchanges()
    request = one.exchange.request
    assert request is not None
    evil = msgspec.structs.replace(request, client_id="a\x1b[31m b")
    changed = msgspec.structs.replace(one, exchange=msgspec.structs.replace(one.exchange, request=evil))
    assert "\x1b" not in waterfall(changed, 80, coloured=False)
    assert who(changed) == 'Metadata v1 of "a\\x1b[31m b"'
    nothing = msgspec.structs.replace(one.exchange, request=None)
    assert who(msgspec.structs.replace(one, exchange=nothing)).startswith("Metadata v1")
    orphan = msgspec.structs.replace(nothing, response=None)
    assert who(msgspec.structs.replace(one, exchange=orphan)) == "a response without its request"
