"""Observers of a live capture: the view of `--top`, `--metrics`, the spans of `--otlp`, tables, and delays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Interrupted
from kafkasniff.cli.options.option_groups import TABLES, FilterOptions, make_export_options, rows_line
from kafkasniff.cli.options.shared_options import Command, stacked
from kafkasniff.errors import UsageError
from kafkasniff.model import NO_TIME, Lines, Message
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    import ssl

    from kafkasniff.capture.live.live import LiveSource
    from kafkasniff.cli.running.pipeline import Event, LineSink, Sink
    from kafkasniff.cli.running.scrapes import MetricsServer
    from kafkasniff.cli.running.top import TopView
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate
    from kafkasniff.live.findings import LiveFindings
    from kafkasniff.live.metrics import Metrics
    from kafkasniff.live.top import TopModel
    from kafkasniff.model import Connection
    from kafkasniff.otlp.spans import SpanObserver
    from kafkasniff.packets import PacketBatch
    from kafkasniff.redact.payload import Payload
    from kafkasniff.tables.exports.live import LiveExport


# Delay between a message's last packet and the writing of its line.

MAX_SAMPLES: Final = 16_384
"""Maximum number of samples. When it is reached, every other sample is dropped and the sampling rate is halved, so the
samples stay evenly spread over the run."""


class TimedSink:
    """Passes events on to a sink and samples the delay of messages. `now`: the clock of the packets, in ns."""

    def __init__(self, inner: LineSink, *, now: Callable[[], int] = time.time_ns) -> None:
        self._inner = inner
        self._now = now
        self._delays: list[int] = []
        self._every = 1
        self._skip = 0

    def write(self, event: Event) -> None:
        """Pass an event on. Hot."""
        self._inner.write(event)
        if type(event) is Message:
            if self._skip:
                self._skip -= 1
            elif event.time_ns is not None:
                self._take(self._now() - event.time_ns)

    def write_lines(self, lines: Lines) -> None:
        """Pass on lines of messages; the delay is that of the last one."""
        self._inner.write_lines(lines)
        if self._skip >= lines.count:
            self._skip -= lines.count
        elif lines.time_ns is not None:
            self._take(self._now() - lines.time_ns)

    def close(self) -> None:
        """End of events."""
        self._inner.close()

    def _take(self, delay: int) -> None:
        self._delays.append(delay)
        if len(self._delays) == MAX_SAMPLES:
            del self._delays[1::2]
            self._every *= 2
        self._skip = self._every - 1

    def line(self) -> str:
        """Median and 99th percentile as text; "" if there was no message."""
        if not self._delays:
            return ""
        from kafkasniff.text.times import duration

        ordered = sorted(self._delays)
        middle, late = (ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99))
        return f"lines {duration(middle)} after their packets (99th percentile {duration(late)})"


# Tables that `live --export` writes in addition to messages: their options, their batches, and their end.

MIN_EVERY_SECONDS: Final = 1.0
"""Minimum of `--export-every`: each commit starts a process and makes some files."""


def export_arguments(
    options: dict[str, Any],
    filters: FilterOptions,
    predicate: Predicate | None,
    seconds_of: Callable[[str | None], float | None],
    *,
    records: bool,
    payload: Payload,
) -> dict[str, Any] | None:
    """Arguments of `LiveExport` from the options for tables, removed from `options`; None without `--export`.

    `seconds_of`: reads a duration. Raises UsageError.
    """
    directory, every = options.pop("directory"), options.pop("every")
    tables, no_bodies, no_json = options.pop("tables"), options.pop("no_bodies"), options.pop("no_json")
    discard_state = options.pop("discard_state")
    if directory is None:
        given_options = (
            ("--discard-state", discard_state),
            ("--export-every", every),
            ("--tables", tables),
            ("--no-bodies", no_bodies),
            ("--no-json", no_json),
        )
        for name, given in given_options:
            if given:
                raise UsageError(f"{name} needs --export DIR")
        return None
    arguments: dict[str, Any] = {"directory": directory, "discard_state": discard_state}
    seconds = seconds_of(every)
    if seconds is not None:
        if seconds < MIN_EVERY_SECONDS:
            raise UsageError(f"--export-every: at least {MIN_EVERY_SECONDS:g} s")
        arguments["every_seconds"] = seconds
    arguments["options"] = make_export_options(
        ",".join(TABLES) if tables is None else tables,
        options,
        filters,
        predicate,
        bodies=not (no_bodies or no_json),
        headers=no_bodies,
        records=records,
        payload=payload,
    )
    return arguments


def exported(environment: Environment, batches: Iterator[PacketBatch], tables: LiveExport) -> Iterator[PacketBatch]:
    """The batches of a source, each after it was added to the tables. Signals are deferred meanwhile."""
    for batch in batches:
        with environment.interrupts.held():
            tables.feed(batch)
        yield batch


def finished(environment: Environment, tables: LiveExport) -> str:
    """Commit the remaining rows; returns their count as text. A first signal is ignored, a second one aborts."""
    try:
        with environment.interrupts.stopping(lambda: None):
            result = tables.close()
    except Interrupted:
        environment.say(f"stopped immediately: {name_of(tables.directory)} lacks the last rows")
        raise
    for notice in result.notices:
        environment.say(notice)
    return rows_line(result.rows, name_of(tables.directory))


# Screen, metrics and spans.

IDLE_SECONDS: Final = 0.25
"""If no packets arrive: how often the clock advances, so that rates fall to zero."""
MAX_LABELS: Final = 10_000
"""Maximum of `--metrics-labels`; Prometheus advises against more values of a label."""
COUNT_SECONDS: Final = 0.5
"""How often to ask the kernel for its counts, for metrics."""


def watch_options(command: Command) -> Command:
    """`--top`, `--metrics`, `--otlp` and their related options."""
    return stacked(
        command,
        [
            click.option("--top", is_flag=True, help="Show a live screen: rates, latencies, errors, clients, topics."),
            click.option(
                "--metrics",
                metavar="[HOST]:PORT",
                help="Serve Prometheus metrics, such as on `:9308`. Without HOST only on 127.0.0.1.",
            ),
            click.option(
                "--metrics-labels",
                type=click.IntRange(1, MAX_LABELS),
                metavar="N",
                help="Topics and client ids with metrics of their own; all others count as `other` [default: 200].",
            ),
            click.option(
                "--metrics-token-file",
                metavar="FILE",
                help="Require the token in FILE (Authorization: Bearer).",
            ),
            click.option("--metrics-cert", metavar="FILE", help="Serve metrics over TLS with this certificate (PEM)."),
            click.option("--metrics-key", metavar="FILE", help="Private key of the certificate (PEM, no passphrase)."),
            click.option(
                "--otlp",
                metavar="URL",
                help="Send exchanges as OpenTelemetry spans, and metrics, over OTLP, such as to http://localhost:4318.",
            ),
        ],
    )


class WatchOptions:
    """The options, removed from a command's options. Raises UsageError."""

    def __init__(self, environment: Environment, options: dict[str, Any], *, examines: bool = False) -> None:
        self.examines = examines
        """Findings are needed without a view."""
        self.top: bool = options.pop("top")
        self.metrics: str | None = options.pop("metrics")
        self.labels: int | None = options.pop("metrics_labels")
        if self.labels is not None and self.metrics is None:
            raise UsageError("--metrics-labels needs --metrics ADDRESS")
        token, cert, key = (options.pop(f"metrics_{what}") for what in ("token_file", "cert", "key"))
        for name, given in (("--metrics-token-file", token), ("--metrics-cert", cert), ("--metrics-key", key)):
            if given is not None and self.metrics is None:
                raise UsageError(f"{name} needs --metrics ADDRESS")
        if (cert is None) != (key is None):
            raise UsageError("--metrics-cert and --metrics-key must be given together")
        self.token: bytes | None = None
        self._tls: ssl.SSLContext | None = None
        if self.metrics is not None:
            from kafkasniff.cli.running.scrapes import parse_address, read_token, tls_context

            parse_address(self.metrics)
            # Read before privileges are dropped: a key often belongs to root.
            self.token = None if token is None else read_token(token)
            self._tls = None if cert is None else tls_context(cert, key)
        self.otlp: str | None = options.pop("otlp")
        self.ports = []
        """TCP ports that the run connects to."""
        if self.otlp is not None:
            from kafkasniff.cli.running.otlp_export import endpoint_port

            self.ports.append(endpoint_port(self.otlp))
        if self.top:
            from kafkasniff.cli.running.top import require_terminal

            require_terminal(environment)

        self.server: MetricsServer | None = None
        """The server for scrapes."""

    def __bool__(self) -> bool:
        return self.top or self.examines or self.metrics is not None or self.otlp is not None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for scrapes within the block. Low ports need privileges that a run drops before it serves.

        Raises OutputError if the server cannot listen.
        """
        if self.metrics is None:
            yield
            return
        from kafkasniff.cli.running.scrapes import listening

        with listening(self.metrics, self._tls) as self.server:
            yield

    @property
    def scheme(self) -> str:
        """URL scheme of the metrics."""
        return "http" if self._tls is None else "https"


class Watch:
    """Observes the events of a run and its clock; a context manager around it. There may be no observer.

    Metrics are served only if `options` ask for it. `catalog`: what the run knows about topics; `selects`: the run
    selects events; `payload`: record headers may be used.
    """

    def __init__(
        self,
        environment: Environment,
        options: WatchOptions,
        source: LiveSource,
        inspector: Inspector,
        *,
        catalog: Catalog,
        selects: bool = False,
        quiet: bool = False,
        payload: bool = True,
    ) -> None:
        self._environment = environment
        self._options = options
        self._source = source
        self._inspector = inspector
        self._catalog = catalog
        self._selects = selects
        self._quiet = quiet
        self._payload = payload
        self._around = contextlib.ExitStack()
        self._model: TopModel | None = None
        self.findings: LiveFindings | None = None
        """What detectors find; None if nobody asks for it."""
        self._view: TopView | None = None
        self._metrics: Metrics | None = None
        self._spans: SpanObserver | None = None
        self._due = 0.0

    def __enter__(self) -> Watch:
        with self._around:
            if self._options.server is not None or self._options.otlp is not None:
                from kafkasniff.live.metrics import DEFAULT_LABELS, Metrics

                self._metrics = Metrics(self._options.labels or DEFAULT_LABELS)
            if self._options.otlp is not None and self._metrics is not None:
                from kafkasniff.otlp.delivery import exporter_to
                from kafkasniff.otlp.spans import sending

                # A warning would damage the screen of --top; the line at the end has the numbers.
                say = (lambda _text: None) if self._options.top else self._environment.say
                exporter = exporter_to(self._options.otlp)
                self._spans = self._around.enter_context(
                    sending(exporter, say, self._metrics, payload=self._payload, live=True)
                )
            if self._options.server is not None and self._metrics is not None:
                from kafkasniff.cli.running.scrapes import serving

                host, port = self._around.enter_context(
                    serving(self._metrics, self._options.server, self._options.token)
                )
                shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                if not self._quiet:
                    self._environment.say(f"metrics at {self._options.scheme}://{shown}/metrics")
                self._warn(host, shown)
            if self._options.top or self._options.examines:
                self.findings = self._detectors()
            if self._options.top:
                from kafkasniff.capture.live.interface_socket import socket_processes
                from kafkasniff.capture.live.ssh_interface import is_ssh
                from kafkasniff.cli.running.top import TopView
                from kafkasniff.live.top import TopModel

                named = self._source.captures
                # Ends on another machine are not those of sockets here.
                processes = {} if any(map(is_ssh, named)) else {"processes": socket_processes}
                self._model = TopModel(", ".join(named), **processes)
                self._view = self._around.enter_context(TopView(self._environment, self._source.stop))
            self._around = self._around.pop_all()
        return self

    def _detectors(self) -> LiveFindings | None:
        """The detectors, which work on tables; None if pyarrow is not installed."""
        if find_spec("pyarrow") is None:
            self._environment.say("warning: no findings, which need: pip install 'kafkasniff[tables]'")
            return None
        from kafkasniff.live.findings import LiveFindings

        inspector = self._inspector
        return LiveFindings(
            inspector,
            lambda: inspector.level > 0,
            catalog=self._catalog,
            selects=self._selects,
            clock=self._environment.clock,
        )

    def _warn(self, host: str, shown: str) -> None:
        """Warn if metrics that other machines can reach are unprotected."""
        from kafkasniff.cli.running.scrapes import is_loopback

        if is_loopback(host):
            return
        if self._options.token is None:
            warning = "anyone who can reach {} can read names of topics and clients; use --metrics-token-file FILE"
            self._environment.say(f"warning: {warning.format(shown)}")
        elif self._options.scheme == "http":
            warning = "the token of --metrics is sent in clear text; --metrics-cert and --metrics-key encrypt it"
            self._environment.say(f"warning: {warning}")

    def __exit__(self, *error: Any) -> None:
        self._around.__exit__(*error)

    def sink(self, inner: Sink) -> Sink:
        """A sink that shows events to the observers and passes them on."""
        if not self._options:
            return inner
        return _WatchedSink(inner, [watcher.take for watcher in self._watchers()])

    def ended(self, connection: Connection) -> None:
        """A connection has ended."""
        for watcher in self._watchers():
            watcher.take(connection)

    def line(self) -> str:
        """What became of the spans; empty without `--otlp`."""
        return "" if self._spans is None else self._spans.line()

    def _watchers(self) -> list[TopModel | Metrics | LiveFindings | SpanObserver]:
        return [one for one in (self._model, self._metrics, self.findings, self._spans) if one is not None]

    def batches(self, batches: Iterator[PacketBatch] | LiveSource) -> Iterator[PacketBatch]:
        """The batches of the source; the clock advances after each has been processed."""
        if not self._options:
            yield from batches
            return
        for batch in batches:
            if self.findings is not None:
                # The batch is about to be decoded at this level.
                self.findings.look()
            yield batch
            if self.findings is not None:
                self.findings.taken(len(batch))
            self._tick(batch)

    def _tick(self, batch: PacketBatch) -> None:
        if self._model is not None:
            latest = int(batch.time_ns.max()) if len(batch) else NO_TIME
            # An empty batch means that nothing arrived until now.
            self._model.advance(time.time_ns() if latest == NO_TIME else latest)
        now = self._environment.clock()
        view = self._view
        if view is not None and view.wants():
            self._count()
            assert self._model is not None
            focus, findings = view.focus, None if self.findings is None else self.findings.shown()
            view.offer(self._model.snapshot(threshold_ns=view.threshold_ns, focus=focus, findings=findings), focus)
            self._due = now + COUNT_SECONDS
        elif self._metrics is not None and now >= self._due:
            self._count()
            self._due = now + COUNT_SECONDS

    def _count(self) -> None:
        counts = list(zip(self._source.captures, self._source.counts(), strict=True))
        if self._model is not None:
            packets, drops = (sum(values) for values in zip(*(two for _, two in counts), strict=True))
            self._model.captured(packets, drops, self._inspector.summary.kafka_connections)
        if self._metrics is not None:
            self._metrics.captured(((name, *two) for name, two in counts), self._inspector.summary)


class _WatchedSink:
    """Passes events to the observers, then to the sink."""

    def __init__(self, inner: Sink, watchers: list[Callable[[Event], None]]) -> None:
        self._inner = inner
        self._watchers = watchers

    def write(self, event: Event) -> None:
        """Observe an event and pass it on. Hot."""
        for watcher in self._watchers:
            watcher(event)
        self._inner.write(event)

    def close(self) -> None:
        """End of events."""
        self._inner.close()
