"""The bounded queue: every span is counted as sent, dropped or failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.otlp import delivery
from kafkasniff.otlp.delivery import Delivery, HttpExporter, exporter_to, port_of
from tests.otlp.receiver import Receiver, receiving
from tests.otlp.test_spans import known, made

PATIENCE = 60


def span(number: int = 0) -> ReadableSpan:
    return made(known(exchange_id=number))


class Reported:
    """An exporter that a test controls."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes = takes
        self.batches: list[int] = []
        self.reports = 0
        self.free = threading.Event()
        self.free.set()
        self.entered = threading.Event()
        self.ended = False

    def spans(self, spans: Sequence[ReadableSpan]) -> bool:
        self.entered.set()
        assert self.free.wait(PATIENCE)
        self.batches.append(len(spans))
        return self.takes

    def metrics(self, _data: MetricsData) -> bool:
        self.reports += 1
        return self.takes

    def shutdown(self) -> None:
        self.ended = True
        self.free.set()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_everything_arrives(over: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=token")
    said: list[str] = []
    with (
        receiving(over) as receiver,
        Delivery(exporter_to(receiver.url), said.append, collect=lambda: MetricsData([])) as sender,
    ):
        for number in range(3 * delivery.MAX_BATCH + 7):
            sender.offer(span(number))
    assert len({one.span_id for one in receiver.spans}) == 3 * delivery.MAX_BATCH + 7
    assert (sender.sent, sender.dropped, sender.failed) == (3 * delivery.MAX_BATCH + 7, 0, 0)
    assert sender.line() == "1,543 spans sent"
    assert said == []
    assert len(receiver.reports) == 1
    assert {one["authorization"] for one in receiver.headers} == {"token"}


def test_refused_over_grpc() -> None:
    said: list[str] = []
    with receiving("grpc") as receiver:
        receiver.status = 503
        with Delivery(exporter_to(receiver.url), said.append) as sender:
            sender.offer(span())
    assert sender.line() == "0 spans sent, 1 not delivered"
    assert said == ["warning: the OTLP receiver did not accept spans: ConnectionError: PERMISSION_DENIED: status 503"]


@pytest.mark.parametrize("location", ["/elsewhere\x1b[31m", None])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_a_success(receiver: Receiver, status: int, location: str | None) -> None:
    receiver.status, receiver.location = status, location
    said: list[str] = []
    with Delivery(HttpExporter(receiver.url), said.append) as sender:
        sender.offer(span())
    assert (sender.sent, sender.failed) == (0, 1)
    (line,) = said
    assert f"(HTTP {status})" in line
    assert "redirects to" in line
    assert "\x1b" not in line


def test_a_full_queue_drops_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_QUEUE", 5)
    monkeypatch.setattr(delivery, "MAX_BATCH", 1)
    exporter, said = Reported(), []
    exporter.free.clear()
    with Delivery(exporter, said.append) as sender:
        sender.offer(span())
        assert exporter.entered.wait(PATIENCE)
        # The thread is busy with the first one.
        for _ in range(8):
            sender.offer(span())
        assert sender.dropped == 3
        exporter.free.set()
    assert (sender.sent, sender.dropped) == (6, 3)
    assert sender.line() == "6 spans sent, 3 dropped"
    assert said == ["warning: spans are dropped: the OTLP receiver is slower than the capture"]


def test_the_end_waits_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(delivery, "MAX_BATCH", 1)
    exporter = Reported(takes=False)
    exporter.free.clear()
    with Delivery(exporter, print) as sender:
        for _ in range(6):
            sender.offer(span())
        assert exporter.entered.wait(PATIENCE)
    assert exporter.ended
    assert (sender.sent, sender.failed, sender.dropped) == (0, 1, 5)


def test_captures_stop_at_a_receiver_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_BATCH", 2)

    def offer_all() -> None:
        with Delivery(Reported(takes=False), lambda _: None, waits=True) as sender:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                sender.offer(span())

    with pytest.raises(OutputError, match=r"0 spans sent, \d+ not delivered: the receiver did not accept them"):
        offer_all()


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_of_the_exporter_is_a_failure(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, said = Reported(), []

    def fail(_spans: Sequence[ReadableSpan]) -> bool:
        raise RuntimeError("cannot\nencode")

    monkeypatch.setattr(exporter, "spans", fail)
    with Delivery(exporter, said.append, waits=waits) as sender:
        sender.offer(span())
    assert (sender.sent, sender.failed, sender.dropped) == (0, 1, 0)
    assert said == ["warning: the OTLP receiver did not accept spans: RuntimeError: cannot encode"]


def test_the_error_of_an_attempt_is_the_reason() -> None:
    """As the exporter logs a port where nothing listens: the last message does not say so."""
    reasons = delivery._Reasons()
    logger = logging.Logger("exporter")
    logger.addHandler(reasons)
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as error:
            raise RuntimeError("Max retries exceeded with url") from error
    except RuntimeError as error:
        logger.warning("Transient error %s encountered while exporting %s batch, retrying in %.2fs.", error, "span", 1)
    logger.error("Failed to export %s batch due to timeout.", "span")
    assert reasons.last == "Failed to export span batch due to timeout: [Errno 111] Connection refused"
    logger.error("Failed to export %s batch code: %s, reason: %s", "span", 400, "Bad Request")
    assert reasons.last == "Failed to export span batch code: 400, reason: Bad Request"


def test_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "METRICS_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "SEND_SECONDS", 0.01)
    exporter = Reported()
    with Delivery(exporter, print, collect=lambda: MetricsData([])) as sender:
        deadline = time.monotonic() + PATIENCE
        while exporter.reports < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        before = exporter.reports
    assert exporter.reports > before, "the last numbers are sent at the end"
    assert sender.unsent_metrics == 0


def test_metrics_that_are_refused_are_counted() -> None:
    said: list[str] = []
    with Delivery(Reported(takes=False), said.append, collect=lambda: MetricsData([])) as sender:
        pass
    assert sender.line() == "0 spans sent, metrics not delivered 1×"
    assert said == ["warning: the OTLP receiver did not accept metrics"]


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://localhost:4318", 4318),
        ("https://otel.example/x", 443),
        ("http://[::1]", 80),
        ("http://10.0.0.1:1/", 1),
        ("grpc://h", 4317),
    ],
)
def test_endpoints(url: str, port: int) -> None:
    assert port_of(url) == port


@pytest.mark.parametrize(
    "url", ["localhost:4318", "grpc://localhost:4317/v1", "http://", "http://x:99999", "tables", "http://x?key=1", ""]
)
def test_no_endpoints(url: str) -> None:
    with pytest.raises(UsageError, match="an address such as http://localhost:4318"):
        port_of(url)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        port_of("http://user:hunter2@localhost:4318")
    assert "hunter2" not in str(refused.value)
