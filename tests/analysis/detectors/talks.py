"""Crafted conversations, exchange by exchange, and the findings of detectors about them and about rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kafkasniff.analysis.detectors import Checked, Finding, find_detector, run
from kafkasniff.kafka.apis.dissectors import api_by_name
from tests.analysis.tables import Row, batch_of
from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.write import write_pcap

SECOND = 1_000_000_000
BROKER = ("10.0.0.9", 9092)


class Talk(Conversation):
    """One connection from its SYN on, of a client at `address`, `after` seconds after the start."""

    def __init__(
        self, address: str = "10.0.0.5", port: int = 51_334, *, after: float = 0, broker: tuple[str, int] = BROKER
    ) -> None:
        super().__init__((address, port), broker, start_ns=START_NS + round(after * SECOND))
        self._number = 0
        self.handshake()

    def ask(
        self,
        api: str,
        version: int,
        request: dict[str, Any],
        response: dict[str, Any] | None,
        *,
        wait: float = 0,
        then: float = 0,
    ) -> None:
        """A request, its response after `wait` seconds (None: no response), then a pause."""
        found = api_by_name(api)
        self._number += 1
        asked = request_bytes(found.key, version, self._number, **request)
        self.send("client", asked, 60_000, acknowledge=False)
        self.wait(round(wait * SECOND))
        if response is not None:
            self.acknowledge("broker")
            self.send("broker", response_bytes(found.key, version, self._number, **response), 60_000)
        self.wait(round(then * SECOND))

    def ended(self) -> Talk:
        """Close the client's side."""
        self.close()
        return self


def capture_of(path: Path, talks: Iterable[Conversation]) -> Path:
    return write_pcap(path, interleaved(talks), nanoseconds=True)


def checked(path: Path, talks: Sequence[Conversation], *only: str, **options: Any) -> Checked:
    """Findings of some detectors in a capture of these conversations."""
    return run([str(capture_of(path, talks))], only=only, **options)


def findings_of(
    name: str, exchanges: Sequence[Row] = (), *, size: int = 1 << 16, **tables: Sequence[Row]
) -> list[Finding]:
    """Findings of a detector for rows of `exchanges` and other tables, in batches of `size` rows."""
    detector = find_detector(name)()
    for table, rows in {"exchanges": exchanges, **tables}.items():
        for start in range(0, len(rows), size):
            detector.update(batch_of(rows[start : start + size], table), table)
    return list(detector.findings())


def numbered(*rows: Row) -> list[Row]:
    """Rows of `exchanges` that are different exchanges."""
    return [{**row, "exchange_id": place} for place, row in enumerate(rows)]
