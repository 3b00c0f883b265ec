"""`kafkasniff live`: an interface to text or JSON lines, until told to stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import click

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.options import (
    FilterOptions,
    OutputOptions,
    filter_options,
    inspector_options,
    make_catalog,
    make_inspector,
    make_predicate,
    make_sink,
    output_options,
    records_wanted,
    split_options,
    topic_ids_option,
    verbosity_options,
)

__all__ = ["live_command"]


@click.command("live")
@click.option("-i", "--interface", required=True, metavar="INTERFACE", help="Where to listen: eth0, lo, any")
@click.argument("bpf", nargs=-1, metavar="[BPF FILTER]")
@output_options
@inspector_options
@filter_options
@topic_ids_option
@click.option("--duration", metavar="S", help="Stop after this time (seconds, or 500ms, 5m).")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@verbosity_options
@click.pass_obj
def live_command(environment: Environment, /, interface: str, bpf: tuple[str, ...], **options: Any) -> int:
    """Decode what passes an interface, until Ctrl-C, --duration or --count. Needs root or CAP_NET_RAW.

    A BPF filter in tcpdump's language narrows what is looked at: `kafkasniff live -i eth0 host 10.0.0.9`.
    """
    environment.verbosity = options["verbose"]
    wanted, quiet = split_options(OutputOptions, options), options.pop("quiet")
    predicate = make_predicate(split_options(FilterOptions, options))
    limit, seconds = options.pop("count"), _seconds(options.pop("duration"))
    catalog = make_catalog(options)
    inspector = make_inspector(options, records_wanted(wanted), exchanges=predicate is not None)

    from kafkasniff.capture.live import open_live
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.pipeline import Pipeline, summary_line
    from kafkasniff.enrich import Enricher

    def ready() -> None:
        if not quiet:
            environment.say(f"listening on {interface}, Ctrl-C to stop")

    with open_live(interface, bpf=" ".join(bpf) or None, on_ready=ready) as source:
        with Output(environment, wanted.output) as output, _timer(seconds, source.stop):
            sink = make_sink(environment, output, wanted, live=True)
            pipeline = Pipeline(
                environment,
                inspector,
                sink,
                enricher=Enricher(catalog, summary=inspector.summary),
                predicate=predicate,
                limit=limit,
            )
            try:
                with environment.interrupts.stopping(source.stop):
                    pipeline.run(source)
            except Interrupted:
                # Asked a second time: not even what was captured until the first is waited for.
                environment.say("stopped at once")
            pipeline.close()
        if not quiet:
            selected = predicate is not None or limit is not None
            environment.say(summary_line(inspector.summary, pipeline.shown if selected else None))
    return Exit.OK


@contextlib.contextmanager
def _timer(seconds: float | None, stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` after some seconds, unless the block is left before."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _seconds(text: str | None) -> float | None:
    """A duration option in seconds: a bare number is seconds here."""
    if text is None:
        return None
    from kafkasniff.filters import parse_duration

    return parse_duration(f"{text}s" if text[-1:].isdigit() else text) / 1e9
