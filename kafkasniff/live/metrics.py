"""Counts of a run so far as Prometheus metrics.

Numbers are kept in plain dictionaries and become metrics only when scraped, so counting is cheap and nothing global is
touched. Counting and scraping happen in different threads, so both hold the lock.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import kafkasniff
from kafkasniff.live.snapshot import api_name
from kafkasniff.live.traffic import GroupLags, OpenRequests, topic_traffic
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken, Summary
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from prometheus_client.metrics_core import CounterMetricFamily, Metric

DEFAULT_LABELS: Final = 200
"""Maximum number of topics, and of client ids, with labels of their own."""
PAIRS_PER_LABEL: Final = 10
"""Maximum number of pairs of a topic and a client id, for each of the above: all combinations would be too many."""
MAX_APIS: Final = 128
"""Maximum number of APIs. Kafka has some hundred; unknown request keys come from the wire."""
MAX_ERROR_CODES: Final = 256
"""Maximum number of error codes. Kafka has some 130; a response may hold any int16."""
MAX_LABEL: Final = 128
"""Maximum number of characters of a label's value; a topic's name has at most 249, client ids are unlimited."""
LATENCY_BUCKETS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Upper bounds in seconds: a Fetch may wait for half a second, a JoinGroup for minutes."""
OTHER: Final = "other"
LENGTH_PREFIX: Final = 4

_BOUNDS_NS: Final = tuple(round(bound * 1e9) for bound in LATENCY_BUCKETS)


class _Labels:
    """Values of a label, at most `bound`; later ones are `other`. Safe to show in a terminal."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._known: dict[str | bytes | None, str] = {}

    def of(self, value: str | bytes | None) -> str:
        """The label for a name from the wire; empty for null. Hot."""
        found = self._known.get(value)
        if found is None:
            if len(self._known) >= self._bound:
                return OTHER
            found = self._known[value] = "" if value is None else _label(value)
        return found


def _label(value: str | bytes) -> str:
    return printable(value[:MAX_LABEL])[:MAX_LABEL]


class Metrics:
    """Takes the events of a run; a collector for a registry of prometheus_client. `labels`: as DEFAULT_LABELS."""

    def __init__(self, labels: int = DEFAULT_LABELS) -> None:
        self._lock = threading.Lock()
        self._apis = _Labels(MAX_APIS)
        self._topics = _Labels(labels)
        self._clients = _Labels(labels)
        self._max_pairs = PAIRS_PER_LABEL * labels
        self._pairs: set[tuple[str, str]] = set()
        self._codes: set[int] = set()
        self._requests: dict[tuple[str, ...], int] = {}
        self._responses: dict[tuple[str, ...], int] = {}
        self._errors: dict[tuple[str, ...], int] = {}
        self._exchanges: dict[tuple[str, ...], int] = {}
        self._bytes: dict[tuple[str, ...], int] = {}
        self._records: dict[tuple[str, ...], int] = {}
        self._record_bytes: dict[tuple[str, ...], int] = {}
        self._problems: dict[tuple[str, ...], int] = {}
        self._latency: dict[str, list[int]] = {}
        """API → responses in each bucket, and above the last bound."""
        self._latency_ns: dict[str, int] = {}
        self._outstanding = OpenRequests()
        self._lags = GroupLags()
        self._ended = 0
        self._summary = Summary()
        self._captured: tuple[tuple[str, int, int], ...] = ()

    def take(self, event: Message | SaslToken | Exchange | Problem | Connection) -> None:
        """Count one event. Hot."""
        with self._lock:
            if type(event) is Message:
                self._message(event)
            elif type(event) is Exchange:
                self._exchange(event)
            elif type(event) is Problem:
                _count(self._problems, (event.kind,))
            elif type(event) is Connection and event.verdict == "kafka":
                self._ended += 1

    def captured(self, interfaces: Iterable[tuple[str, int, int]], summary: Summary) -> None:
        """(name, packets, dropped packets) of each interface since the start, and the summary so far."""
        with self._lock:
            self._captured = tuple(interfaces)
            self._summary.kafka_connections = summary.kafka_connections
            self._summary.bytes_lost = summary.bytes_lost

    def _message(self, message: Message) -> None:
        api = self._apis.of(api_name(message))
        for problem in message.problems:
            _count(self._problems, (problem.kind,))
        self._outstanding.message(message)
        if message.type == "request":
            _count(self._requests, (api,))
        else:
            _count(self._responses, (api,))
            if message.latency_ns is not None:
                self._measure(api, message.latency_ns)
            if message.errors:
                for code, name in {(error.code, error.name) for error in message.errors}:
                    _count(self._errors, (api, *self._code(code, name)))
        _count(self._bytes, (api, message.type), message.size + LENGTH_PREFIX)
        for traffic in topic_traffic(message):
            if traffic.records or traffic.bytes:
                pair = self._pair(traffic.topic, message.client_id)
                _count(self._records, (*pair, traffic.flow), traffic.records)
                _count(self._record_bytes, (*pair, traffic.flow), traffic.bytes)

    def _exchange(self, exchange: Exchange) -> None:
        self._outstanding.exchange(exchange)
        self._lags.feed(exchange)
        known = exchange.request or exchange.response
        api = "?" if known is None else self._apis.of(api_name(known))
        _count(self._exchanges, (api, exchange.status))

    def _measure(self, api: str, latency_ns: int) -> None:
        buckets = self._latency.get(api)
        if buckets is None:
            buckets = self._latency[api] = [0] * (len(_BOUNDS_NS) + 1)
            self._latency_ns[api] = 0
        buckets[bisect_left(_BOUNDS_NS, latency_ns)] += 1
        # A sum must not decrease (packets with two clocks have negative latencies).
        self._latency_ns[api] += max(latency_ns, 0)

    def _code(self, code: int, name: str | None) -> tuple[str, str]:
        if code not in self._codes:
            if len(self._codes) >= MAX_ERROR_CODES:
                return (OTHER, OTHER)
            self._codes.add(code)
        return (str(code), name or "")

    def _pair(self, topic: str | bytes, client_id: str | bytes | None) -> tuple[str, str]:
        pair = (self._topics.of(topic), self._clients.of(client_id))
        if pair not in self._pairs:
            if len(self._pairs) >= self._max_pairs:
                return (pair[0], OTHER)
            self._pairs.add(pair)
        return pair

    # -- output -----------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """All metrics, as a registry of prometheus_client asks for them."""
        with self._lock:
            found = list(self._families())
        yield from found

    def _families(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import (  # noqa: PLC0415 - only who is asked for metrics needs it
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        def counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
            family: CounterMetricFamily = CounterMetricFamily(f"kafkasniff_{name}", text, labels=labels)
            for key, value in sorted(values.items()):
                family.add_metric(key, value)
            return family

        yield InfoMetricFamily("kafkasniff_build", "The running kafkasniff.", value={"version": kafkasniff.__version__})
        yield counter("requests", "Requests.", ("api",), self._requests)
        yield counter("responses", "Responses.", ("api",), self._responses)
        text = "Responses that contain this error code, each counted once."
        yield counter("errors", text, ("api", "code", "error"), self._errors)
        yield counter("exchanges", "Finished exchanges, by how they ended.", ("api", "status"), self._exchanges)
        text = "Bytes of messages, length prefix included."
        yield counter("message_bytes", text, ("api", "direction"), self._bytes)
        latency = HistogramMetricFamily(
            "kafkasniff_latency_seconds",
            "From the completion of a request to the first byte of its response.",
            labels=("api",),
        )
        for api, counts in sorted(self._latency.items()):
            running, buckets = 0, []
            for bound, count in zip((*LATENCY_BUCKETS, float("inf")), counts, strict=True):
                running += count
                buckets.append(("+Inf" if bound == float("inf") else repr(bound), running))
            latency.add_metric((api,), buckets, self._latency_ns[api] / 1e9)
        yield latency
        labels = ("topic", "client_id", "direction")
        yield counter("records", "Records in Produce requests and Fetch responses.", labels, self._records)
        yield counter("record_bytes", "Bytes of their batches, as on the wire.", labels, self._record_bytes)
        yield counter("problems", "Problems by kind, see `kafkasniff help problems`.", ("kind",), self._problems)
        yield counter("connections", "Kafka connections.", (), {(): self._summary.kafka_connections})
        yield counter("lost_bytes", "Bytes of streams that were not captured.", (), {(): self._summary.bytes_lost})
        yield GaugeMetricFamily(
            "kafkasniff_connections_open",
            "Kafka connections that are open.",
            value=max(self._summary.kafka_connections - self._ended, 0),
        )
        yield GaugeMetricFamily(
            "kafkasniff_outstanding_requests",
            "Requests without a response so far.",
            value=len(self._outstanding),
        )
        lags, commits = (
            GaugeMetricFamily(f"kafkasniff_group_{name}", text, labels=("group", "topic", "partition"))
            for name, text in (
                ("lag_records", "Records from the group's last commit to the last known end of the partition."),
                ("committed_offset", "The group's last committed offset."),
            )
        )
        # Long names that begin alike share a series: that of the last commit.
        series = {(_label(row.group), _label(row.topic), str(row.partition)): row for row in self._lags.rows()}
        for key, row in sorted(series.items()):
            lags.add_metric(key, row.lag)
            commits.add_metric(key, row.committed)
        yield lags
        yield commits
        packets: dict[tuple[str, ...], int] = {(name,): count for name, count, _ in self._captured}
        yield counter("packets", "Packets that passed the filter, dropped ones included.", ("interface",), packets)
        dropped: dict[tuple[str, ...], int] = {(name,): count for name, _, count in self._captured}
        yield counter("dropped_packets", "Packets that the kernel dropped.", ("interface",), dropped)


def _count(into: dict[tuple[str, ...], int], key: tuple[str, ...], by: int = 1) -> None:
    into[key] = into.get(key, 0) + by
