"""`export --format otlp`: the exchanges of captures as spans, sent to a receiver; and the address of `live --otlp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.option_groups import make_catalog, make_inspector, make_selector
from kafkasniff.errors import MissingExtraError

if TYPE_CHECKING:
    from kafkasniff.cli.running.pipeline import Event
    from kafkasniff.filters import Predicate
    from kafkasniff.live.metrics import Metrics
    from kafkasniff.otlp.spans import SpanObserver
    from kafkasniff.redact.payload import Payload


class _Observed:
    """Shows events to the observers."""

    def __init__(self, metrics: Metrics, spans: SpanObserver) -> None:
        self._takes = (metrics.take, spans.take)

    def write(self, event: Event) -> None:
        """Observe an event. Hot."""
        for take in self._takes:
            take(event)

    def close(self) -> None:
        """End of events."""


def endpoint_port(url: str) -> int:
    """The port of a receiver. Raises UsageError if it is not one, MissingExtraError without the packages."""
    try:
        from kafkasniff.otlp.delivery import port_of

        return port_of(url)
    except ModuleNotFoundError as error:
        extra, package = ("otlp-grpc", "grpcio") if error.name == "grpc" else ("otlp", error.name)
        raise MissingExtraError("OTLP", package or "opentelemetry-sdk", extra) from None


def export_spans(
    environment: Environment,
    captures: tuple[str, ...],
    url: str,
    options: dict[str, Any],
    *,
    predicate: Predicate | None,
    payload: Payload,
    quiet: bool,
) -> Exit:
    """Send the exchanges of captures that a filter selects. Raises UsageError, MissingExtraError, OutputError."""
    endpoint_port(url)
    catalog = make_catalog(options)
    # Record headers name the traces.
    inspector = make_inspector(options, "metadata" if payload.hides and predicate is None else "full", exchanges=True)

    from kafkasniff.capture import open_captures
    from kafkasniff.cli.output import Progress, wants_progress
    from kafkasniff.cli.running.pipeline import Pipeline, summary_line
    from kafkasniff.enrich import Enricher
    from kafkasniff.live.metrics import Metrics
    from kafkasniff.otlp.delivery import exporter_to
    from kafkasniff.otlp.spans import sending

    metrics = Metrics()
    with open_captures(captures, stdin=environment.stdin) as source:
        with sending(exporter_to(url), environment.say, metrics, payload=not payload.hides, live=False) as spans:
            run = Pipeline(
                environment,
                inspector,
                _Observed(metrics, spans),
                enricher=Enricher(catalog, summary=inspector.summary),
                selector=make_selector(predicate),
            )
            run.run(
                source,
                Progress(environment, source) if wants_progress(environment, to_terminal=False, quiet=quiet) else None,
            )
            run.close()
            metrics.captured((), inspector.summary)
        if not quiet:
            environment.say(f"{spans.line()}: {summary_line(inspector.summary)}")
        if spans.delivery.failed or spans.delivery.dropped or spans.delivery.unsent_metrics:
            return Exit.UNAVAILABLE
        return Exit.BROKEN if source.broken else Exit.OK
