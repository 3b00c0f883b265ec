"""Observes the events of a run for a receiver of OTLP."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from opentelemetry.sdk.metrics.export import MetricsData

from kafkasniff.live.metrics import Metrics
from kafkasniff.live.traffic import ClientGroups
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken
from kafkasniff.otlp.delivery import Delivery, Exporter
from kafkasniff.otlp.measurements import metrics_data
from kafkasniff.otlp.spans import observer, span_of

__all__ = ["SpanObserver", "sending"]


class SpanObserver:
    """Makes a span of each exchange."""

    def __init__(self, metrics: Metrics, *, payload: bool, live: bool) -> None:
        """`payload`: record headers may be used; `live`: times of metrics are those of this machine's clock."""
        self.delivery: Delivery
        self.without = 0
        """Exchanges without a span: their request or its time is unknown."""
        self._metrics = metrics
        self._payload = payload
        self._live = live
        self._resource = observer()
        self._groups = ClientGroups()
        self._start_ns = self._latest_ns = time.time_ns() if live else 0

    def take(self, event: Message | SaslToken | Exchange | Problem | Connection) -> None:
        """Observe one event. Hot."""
        if type(event) is not Exchange:
            return
        span = span_of(event, self._resource, group=self._groups.of(event.request), payload=self._payload)
        if span is None or span.start_time is None or span.end_time is None:
            self.without += 1
            return
        if not self._live:
            self._start_ns = min(self._start_ns or span.start_time, span.start_time)
            self._latest_ns = max(self._latest_ns, span.end_time)
        self.delivery.offer(span)

    def collect(self) -> MetricsData:
        """The metrics so far. Called by the thread that sends."""
        now_ns = time.time_ns() if self._live else self._latest_ns
        return metrics_data(self._metrics, self._resource, self._start_ns, now_ns)

    def line(self) -> str:
        """What became of the exchanges."""
        without = (
            f", {self.without:,} exchange{'' if self.without == 1 else 's'} without a span" if self.without else ""
        )
        return self.delivery.line() + without


@contextlib.contextmanager
def sending(
    exporter: Exporter, say: Callable[[str], None], metrics: Metrics, *, payload: bool, live: bool
) -> Iterator[SpanObserver]:
    """Send spans, and `metrics` now and then, within the block."""
    made = SpanObserver(metrics, payload=payload, live=live)
    with Delivery(exporter, say, waits=not live, collect=made.collect) as made.delivery:
        yield made
