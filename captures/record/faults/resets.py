"""Recordings of consumers without a valid offset."""

from __future__ import annotations

from collections.abc import Callable

from . import Fault, Stage
from .mistakes import members
from .positions import groups
from .waits import java_waits, librdkafka


def _resets(committed: int | None, times: int = 3) -> Callable[[Stage], None]:
    """A consumer with auto.offset.reset=none is started again and again."""

    def play(stage: Stage) -> None:
        broker = stage.broker()
        stage.run(java_waits("topic", broker.bootstrap(), "orders", "1"))
        stage.run(librdkafka("produce", broker.bootstrap(), "orders", "40", "10", "linger.ms=50"))
        stage.clients.append("Apache Kafka's Java client")
        if committed is not None:
            stage.run(groups(f"commit-{committed}", broker))
        with stage.recording(broker.port()):
            for _ in range(times):
                settings = ("client.id=strict", "group.id=readers", "auto.offset.reset=none")
                stage.run(members("reads", broker, 4, 0, *settings), fails=True)

    return play


FAULTS = [
    Fault(
        "no-offset-no-reset.pcap",
        "a consumer with auto.offset.reset=none and no committed offset, started three times",
        _resets(None),
    ),
    Fault(
        "offset-out-of-range-no-reset.pcap",
        "a consumer with auto.offset.reset=none whose committed offset 500 is beyond the log's end, three times",
        _resets(500),
    ),
    Fault(
        "offset-no-reset.pcap",
        "a consumer with auto.offset.reset=none that has committed an offset",
        _resets(10),
        looks_like="no-offset-no-reset.pcap",
    ),
]
