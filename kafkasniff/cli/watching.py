"""Who watches a live capture: the view of `--top`, the metrics of `--metrics`, both or nobody."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import UsageError
from kafkasniff.streams import NO_TIME

if TYPE_CHECKING:
    import ssl

    from kafkasniff.capture.live import LiveSource
    from kafkasniff.cli.pipeline import Event, Sink
    from kafkasniff.cli.scrapes import MetricsServer
    from kafkasniff.cli.top import TopView
    from kafkasniff.enrich import Catalog
    from kafkasniff.inspector import Inspector
    from kafkasniff.model import Connection
    from kafkasniff.packets import PacketBatch
    from kafkasniff.watch.findings import LiveFindings
    from kafkasniff.watch.metrics import Metrics
    from kafkasniff.watch.top import TopModel

__all__ = ["IDLE_SECONDS", "Watch", "WatchOptions", "watch_options"]

IDLE_SECONDS: Final = 0.25
"""Where nothing comes from the interface, how often the clock goes on: rates fall to nothing."""
MAX_LABELS: Final = 10_000
"""Of `--metrics-labels`; Prometheus itself advises against more values of a label than that."""
COUNT_SECONDS: Final = 0.5
"""How often the kernel is asked for its counts, for metrics."""


def watch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--top`, `--metrics` and what belongs to it."""
    for option in (
        click.option("--metrics-key", metavar="FILE", help="Private key of the certificate (PEM, no passphrase)."),
        click.option("--metrics-cert", metavar="FILE", help="Serve metrics over TLS with this certificate (PEM)."),
        click.option(
            "--metrics-token-file",
            metavar="FILE",
            help="Require the token in FILE (Authorization: Bearer).",
        ),
        click.option(
            "--metrics-labels",
            type=click.IntRange(1, MAX_LABELS),
            metavar="N",
            help="Topics and client ids with metrics of their own; all others count as `other` [default: 200].",
        ),
        click.option(
            "--metrics",
            metavar="[HOST]:PORT",
            help="Serve Prometheus metrics, such as on `:9308`. Without HOST only on 127.0.0.1.",
        ),
        click.option("--top", is_flag=True, help="Show a live screen: rates, latencies, errors, clients, topics."),
    ):
        command = option(command)
    return command


class WatchOptions:
    """The options, taken out of a command's. Raises UsageError."""

    def __init__(self, environment: Environment, options: dict[str, Any]) -> None:
        self.top: bool = options.pop("top")
        self.metrics: str | None = options.pop("metrics")
        self.labels: int | None = options.pop("metrics_labels")
        if self.labels is not None and self.metrics is None:
            raise UsageError("--metrics-labels is for metrics: say where with --metrics")
        token, cert, key = (options.pop(f"metrics_{what}") for what in ("token_file", "cert", "key"))
        for name, given in (("--metrics-token-file", token), ("--metrics-cert", cert), ("--metrics-key", key)):
            if given is not None and self.metrics is None:
                raise UsageError(f"{name} is for metrics: say where with --metrics")
        if (cert is None) != (key is None):
            raise UsageError("--metrics-cert and --metrics-key belong together: give both")
        self.token: bytes | None = None
        self._tls: ssl.SSLContext | None = None
        if self.metrics is not None:
            from kafkasniff.cli.scrape_access import read_token, tls_context
            from kafkasniff.cli.scrapes import parse_address

            parse_address(self.metrics)
            # Read here, before rights are given up: a key is often root's.
            self.token = None if token is None else read_token(token)
            self._tls = None if cert is None else tls_context(cert, key)
        if self.top:
            from kafkasniff.cli.top import require_terminal

            require_terminal(environment)

        self.server: MetricsServer | None = None
        """What listens for scrapes."""

    def __bool__(self) -> bool:
        return self.top or self.metrics is not None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for scrapes within the block: low ports take rights that a run gives up before it serves them.

        Raises OutputError where that cannot be done.
        """
        if self.metrics is None:
            yield
            return
        from kafkasniff.cli.scrapes import listening

        with listening(self.metrics, self._tls) as self.server:
            yield

    @property
    def scheme(self) -> str:
        """Of the address of metrics."""
        return "http" if self._tls is None else "https"


class Watch:
    """Sees the events of a run and its clock; a context manager around it. Nobody may be watching.

    Metrics are served where `options` listen, and not at all where they do not. `catalog`: what the run knows of
    topics; `selects`: it selects events.
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
    ) -> None:
        self._environment = environment
        self._options = options
        self._source = source
        self._inspector = inspector
        self._catalog = catalog
        self._selects = selects
        self._quiet = quiet
        self._around = contextlib.ExitStack()
        self._model: TopModel | None = None
        self._findings: LiveFindings | None = None
        self._view: TopView | None = None
        self._metrics: Metrics | None = None
        self._due = 0.0

    def __enter__(self) -> Watch:
        with self._around:
            if self._options.server is not None:
                from kafkasniff.cli.scrapes import serving
                from kafkasniff.watch.metrics import DEFAULT_LABELS, Metrics

                self._metrics = Metrics(self._options.labels or DEFAULT_LABELS)
                host, port = self._around.enter_context(
                    serving(self._metrics, self._options.server, self._options.token)
                )
                shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                if not self._quiet:
                    self._environment.say(f"metrics at {self._options.scheme}://{shown}/metrics")
                self._warn(host, shown)
            if self._options.top:
                from kafkasniff.cli.top import TopView
                from kafkasniff.watch.findings import LiveFindings
                from kafkasniff.watch.top import TopModel

                inspector = self._inspector
                self._findings = LiveFindings(
                    lambda: inspector.level > 0,
                    catalog=self._catalog,
                    selects=self._selects,
                    clock=self._environment.clock,
                )
                self._model = TopModel(", ".join(self._source.captures))
                self._view = self._around.enter_context(TopView(self._environment, self._source.stop))
            self._around = self._around.pop_all()
        return self

    def _warn(self, host: str, shown: str) -> None:
        """What others than this machine reach is to be protected."""
        from kafkasniff.cli.scrape_access import is_loopback

        if is_loopback(host):
            return
        if self._options.token is None:
            told = "whoever reaches {} can read names of topics and clients: --metrics-token-file FILE asks for a token"
            self._environment.say(f"warning: {told.format(shown)}")
        elif self._options.scheme == "http":
            told = "the token of --metrics goes over the network in clear: --metrics-cert and --metrics-key encrypt it"
            self._environment.say(f"warning: {told}")

    def __exit__(self, *error: Any) -> None:
        self._around.__exit__(*error)

    def sink(self, inner: Sink) -> Sink:
        """A sink that shows events to who watches, and hands them on."""
        if not self._options:
            return inner
        return _WatchedSink(inner, [one.take for one in self._watchers()])

    def ended(self, connection: Connection) -> None:
        """A connection is over."""
        for one in self._watchers():
            one.take(connection)

    def _watchers(self) -> list[TopModel | Metrics | LiveFindings]:
        return [one for one in (self._model, self._metrics, self._findings) if one is not None]

    def batches(self, batches: Iterator[PacketBatch] | LiveSource) -> Iterator[PacketBatch]:
        """The batches of the source; when each has been dealt with, the clock goes on."""
        if not self._options:
            yield from batches
            return
        for batch in batches:
            if self._findings is not None:
                # The batch is going to be decoded at this level.
                self._findings.look()
            yield batch
            self._tick(batch)

    def _tick(self, batch: PacketBatch) -> None:
        if self._model is not None:
            latest = int(batch.time_ns.max()) if len(batch) else NO_TIME
            # An empty batch says that there was nothing until now.
            self._model.advance(time.time_ns() if latest == NO_TIME else latest)
        now = self._environment.clock()
        view = self._view
        if view is not None and view.wants():
            self._count()
            assert self._model is not None
            assert self._findings is not None
            focus, findings = view.focus, self._findings.shown()
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
    """Events to who watches, then to the sink."""

    def __init__(self, inner: Sink, watchers: list[Callable[[Event], None]]) -> None:
        self._inner = inner
        self._watchers = watchers

    def write(self, event: Event) -> None:
        """Show it and hand it on. Hot."""
        for watcher in self._watchers:
            watcher(event)
        self._inner.write(event)

    def close(self) -> None:
        """There are no more."""
        self._inner.close()
