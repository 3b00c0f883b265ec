"""`kafkasniff live`: decodes an interface to text, JSON lines and tables until it is stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.options.capture_options import (
    capture_options,
    interface_table,
    kept,
    kept_line,
    make_keeper,
    take_capturing,
    take_interfaces,
    take_writing,
    write_options,
)
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import (
    TABLES,
    discard_state_option,
    filter_options,
    inspector_options,
    key_arguments,
    make_catalog,
    make_inspector,
    make_predicate,
    make_renderer,
    make_selector,
    make_settings,
    output_options,
    records_wanted,
    take_filters,
    take_output,
    topic_ids_option,
    verbosity_options,
)
from kafkasniff.cli.options.record_options import (
    make_values,
    payload_options,
    registry_options,
    take_payload,
    take_schemas,
    with_records,
)
from kafkasniff.cli.options.shared_options import hosts_option, take_hosts
from kafkasniff.cli.running.privileges import Rights, take_rights, user_options
from kafkasniff.cli.running.recording import notify_options, recorder_options, take_notifier, take_recording
from kafkasniff.cli.running.watching import (
    IDLE_SECONDS,
    Watch,
    WatchOptions,
    export_arguments,
    exported,
    finished,
    watch_options,
)
from kafkasniff.errors import UsageError
from kafkasniff.model import Exchange, Message
from kafkasniff.runtime.addresses import is_remote
from kafkasniff.runtime.threads import ENDS_WITH_STDIN

if TYPE_CHECKING:
    from kafkasniff.capture.live.live import LiveSource
    from kafkasniff.cli.options.capture_options import Writing
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.running.pipeline import Event, Sink
    from kafkasniff.cli.running.recording import Recording
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.live.load_shedding import Pressure
    from kafkasniff.live.packet_filter import Keeper
    from kafkasniff.tables.exports.live import LiveExport

LOOK_SECONDS: Final = 1.0
"""If no packets arrive: how often to check whether a commit of tables is due."""


@click.command("live", cls=SectionedCommand)
@capture_options
@user_options
@click.argument("bpf", nargs=-1, metavar="[BPF FILTER]")
@output_options
@inspector_options
@payload_options
@filter_options
@topic_ids_option
@hosts_option
@registry_options
@click.option("--browse", is_flag=True, help="Look around in what is captured, as `browse` does.")
@click.option("--duration", metavar="S", help="Stop after this time (seconds, or 500ms, 5m).")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option(
    "--export",
    "directory",
    metavar="DIR",
    help="Also write tables to DIR, as `export` does. With -q, messages are printed only if -o is given.",
)
@click.option("--export-every", "every", metavar="DURATION", help="Time between commits of the tables [default: 10m].")
@click.option("--tables", metavar="NAMES", help=f"Tables to write, separated by commas [default: {', '.join(TABLES)}].")
@click.option("--no-bodies", is_flag=True, help="Do not decode bodies; table columns that need them are null.")
@click.option("--no-json", is_flag=True, help="Leave the columns request_body and response_body null.")
@discard_state_option
@write_options
@recorder_options
@notify_options
@watch_options
@verbosity_options
@click.pass_obj
def live_command(environment: Environment, /, bpf: tuple[str, ...], **options: Any) -> int:
    """Decode live traffic until Ctrl-C, --duration or --count. Needs root or CAP_NET_RAW.

    A BPF filter, in tcpdump's syntax, selects packets: `kafkasniff live -i eth0 host 10.0.0.9`.
    """
    environment.verbosity = options["verbose"]
    if options.pop("list_interfaces"):
        environment.stdout.write(interface_table().encode())
        return Exit.OK
    if options["browse"]:
        from kafkasniff.cli.running.browsing import browse_live

        return browse_live(environment, options, bpf)
    del options["browse"]
    interfaces, capturing = take_interfaces(options), take_capturing(options, _seconds)
    rights = take_rights(options, environment)
    notifier = take_notifier(options, environment.environ)
    recording = take_recording(options, _seconds, notifies=notifier is not None)
    writing, expression = take_writing(options, _seconds), " ".join(bpf) or None
    schemas = take_schemas(options, environment.environ)
    asked, quiet = take_output(options), options.pop("quiet")
    wanted = with_records(asked, schemas)
    payload = take_payload(options)
    filters = take_filters(options)
    predicate = make_predicate(filters)
    limit, seconds = options.pop("count"), _seconds(options.pop("duration"))
    exporting = export_arguments(options, filters, predicate, _seconds, records=bool(asked.records), payload=payload)
    catalog, hosts = make_catalog(options), take_hosts(options)
    watching = WatchOptions(
        environment, options, examines=notifier is not None or (recording is not None and recording.examines)
    )
    # The screen of --top replaces messages.
    shows = wanted.output is not None and not (watching.top and wanted.output == "-")
    if not watching.top:
        works = exporting is not None or writing is not None or recording is not None or bool(watching)
        shows = shows or not quiet or not works
    table_keys = {} if exporting is None else key_arguments(options, grows=True)
    memory: int | None = options["memory"]
    # Record headers name the traces of spans.
    records = "full" if watching.otlp and not payload.hides else records_wanted(wanted, predicate, shown=shows)
    renderer = None
    if shows and predicate is None and not watching and (schemas is None or records != "full"):
        renderer = make_renderer(wanted, payload)
    inspector = make_inspector(
        options,
        records,
        exchanges=predicate is not None or bool(watching) or bool(wanted.fields),
        connections=bool(watching),
        grows=True,
        renderer=renderer,
        frames=shows and bool(wanted.hex),
        network="links" if watching.top or watching.examines else "nothing",
    )
    values = make_values(schemas, records, predicate, payload, inspector.summary)
    if exporting is not None and len(interfaces) > 1:
        raise UsageError("--export takes one interface, or any")
    folders = []
    if exporting is not None and not is_remote(exporting["directory"]):
        folders.append(exporting["directory"])
    if writing is not None and writing.rotates:
        folders.append(writing.folder)
    if recording is not None:
        folders.append(recording.folder)
    ports = [*watching.ports, *([] if notifier is None else notifier.ports)]
    rights.settle(environment, folders, [*ports, *([] if schemas is None else schemas.ports)])

    from kafkasniff.capture.live.live import open_live
    from kafkasniff.cli.running.nothing_selected import end_without_messages
    from kafkasniff.cli.running.pipeline import Pipeline, begin_lines, summary_line
    from kafkasniff.cli.running.watching import TimedSink
    from kafkasniff.enrich import Enricher
    from kafkasniff.kafka.connection.events import Level
    from kafkasniff.live.load_shedding import left_out_line

    def ready() -> None:
        if not (quiet or watching.top):
            environment.say(f"listening on {', '.join(interfaces)}{rights.suffix}, Ctrl-C to stop")

    def say(text: str) -> None:
        # A line would damage the screen of --top, which counts problems.
        if not watching.top:
            environment.say(text)

    with contextlib.ExitStack() as around:
        around.enter_context(rights.explained())
        tables: LiveExport | None = None
        if exporting is not None:
            from kafkasniff.runtime.memory_limits import checked_memory
            from kafkasniff.tables.exports.live import LiveExport

            # Messages and tables are decoded by separate inspectors, which share the budget.
            whole = checked_memory(memory)
            inspector.limit_memory(whole // 2)
            exporting = {**exporting, "given": catalog.given, "predicate": predicate}
            exporting |= {"memory": whole // 2, "whole": whole}
            with rights.acting():
                tables = around.enter_context(LiveExport(interface=interfaces[0], **exporting))
            if "keys" in table_keys:
                tables.inspector.follow_key_log(table_keys["keys"])
        idle = None if tables is None else LOOK_SECONDS
        if watching or recording is not None:
            idle = IDLE_SECONDS
        if recording is not None:
            around.enter_context(recording.listening())
            # The inspector and the recorder share the budget.
            inspector.limit_memory(inspector.memory // 2)
        with (
            open_live(
                interfaces[0] if len(interfaces) == 1 else interfaces,
                bpf=expression,
                idle_seconds=idle,
                on_ready=ready,
                parent=0 if environment.environ.get(ENDS_WITH_STDIN) else None,
                say=say,
                **capturing,
            ) as source,
            watching.listening(),
            _output(environment, wanted.output, rights) as output,
            _keeper(environment, writing, recording, source, inspector, bpf=expression, rights=rights) as keeper,
            _given_up(rights),
            _timer(seconds, source.stop),
            Watch(
                environment,
                watching,
                source,
                inspector,
                catalog=catalog,
                selects=predicate is not None,
                quiet=quiet,
                payload=not payload.hides,
            ) as watch,
        ):
            sink: Sink = _NoSink()
            enricher = Enricher(catalog, summary=inspector.summary)
            selector = make_selector(predicate)
            timed: TimedSink | None = None
            flush: Callable[[], None] | None = None
            if shows:
                settings = make_settings(
                    environment,
                    output,
                    wanted,
                    captures=len(interfaces) > 1,
                    names=None if hosts is None else hosts.names,
                    payload=payload,
                    secrets=inspector.decode_options.show_secrets,
                )
                inner = wanted.format.open(output, settings)
                sink = timed = TimedSink(inner)
                flush = inner.flush
            pipeline = Pipeline(
                environment,
                inspector,
                watch.sink(sink),
                enricher=enricher,
                selector=selector,
                limit=limit,
                counts=Exchange if wanted.fields else Message,
                flush=flush,
                ended=watch.ended if watching else None,
                values=values,
            )
            if (
                timed is not None
                and not watching
                and values is None
                and not wanted.fields
                and begin_lines(
                    inspector,
                    inner,
                    enricher,
                    wanted,
                    settings,
                    renderer=renderer,
                    filtered=None if predicate is None or selector is None else (predicate, selector),
                    left=None if limit is None else pipeline.left,
                )
            ):
                pipeline.lines = timed
            decodes = shows or limit is not None or bool(watching)
            runs = decodes or writing is not None or recording is not None
            pressure = _load_shedding(source, inspector if decodes else None, tables)
            if not decodes:
                # --write only needs to know which connections are Kafka.
                inspector.level = Level.NO_MESSAGES
            batches = pressure.batches(source)
            if tables is not None:
                batches = exported(environment, batches, tables)
            if keeper is not None:
                around.callback(keeper.close)
                batches = written = kept(environment, source, batches, keeper)
                around.callback(written.close)
            try:
                with environment.interrupts.stopping(source.stop):
                    batches = watch.batches(batches)
                    if recording is not None:
                        batches = recording.batches(batches, watch.findings, say=say, payload=not payload.hides)
                    if notifier is not None:
                        batches = notifier.batches(batches, watch.findings, source.captures, say)
                    if runs:
                        pipeline.run(batches)
                    else:
                        for _ in batches:
                            pass
            except Interrupted as interrupt:
                interrupt.accept()
                # Second signal: do not even wait for what was captured before the first.
                environment.say("stopped immediately")
                if tables is not None and tables.torn:
                    raise
            pipeline.close()
            files = ""
            if writing is not None and keeper is not None:
                written.close()
                files = f"{kept_line(environment, keeper, writing.name)}: "
        rows = "" if tables is None else f"{finished(environment, tables)}: "
        if not quiet:
            selected = predicate is not None or limit is not None
            unit = "exchanges " if wanted.fields else ""
            line = summary_line(inspector.summary, pipeline.shown if selected else None, unit)
            nothing = end_without_messages(inspector.summary, pipeline.shown if selected else None) if decodes else None
            if nothing is not None:
                environment.say(nothing)
            more = [left_out_line(pressure.left_out()), "" if timed is None else timed.line(), watch.line()]
            environment.say(", ".join([files + rows + line, *(one for one in more if one)]))
    if writing is not None and keeper is not None and keeper.files.broken:
        return Exit.UNAVAILABLE
    return Exit.BROKEN if source.broken else Exit.OK


class _NoSink:
    """Discards events: messages are not printed."""

    def write(self, event: Event) -> None:
        """Discard an event."""

    def close(self) -> None:
        """Nothing to finish."""


def _load_shedding(source: LiveSource, inspector: Inspector | None, tables: LiveExport | None) -> Pressure:
    """Load shedding, for a run that cannot keep up with its source. Rows of exchanges are never dropped."""
    from kafkasniff.kafka.connection.events import Level
    from kafkasniff.live.load_shedding import Pressure

    inspectors = [] if inspector is None else [(inspector, Level.NO_MESSAGES)]
    if tables is not None:
        inspectors.append((tables.inspector, Level.NO_BODIES))
    return Pressure(lambda: source.backlog, inspectors)


def _output(environment: Environment, path: str | None, rights: Rights) -> Output:
    """The output for messages. Raises OutputError."""
    from kafkasniff.cli.output import Output

    with rights.opening():
        return Output(environment, path)


@contextlib.contextmanager
def _keeper(
    environment: Environment,
    writing: Writing | None,
    recording: Recording | None,
    source: LiveSource,
    inspector: Inspector,
    *,
    bpf: str | None,
    rights: Rights,
) -> Iterator[Keeper | None]:
    """What keeps packets, in files (the first one open) or in memory; None if nothing does. The caller closes it."""
    if recording is not None:
        from kafkasniff.live.packet_filter import Keeper

        yield Keeper(recording.recorder(source.interfaces, inspector.memory, bpf), inspector)
        return
    if writing is None:
        yield None
        return
    # Files that rotate, the first one included, are made as the user that the run continues as.
    with rights.acting() if writing.rotates else rights.opening():
        keeper = make_keeper(environment, writing, source, inspector, bpf)
    yield keeper


@contextlib.contextmanager
def _given_up(rights: Rights) -> Iterator[None]:
    """Within the block the run has only the privileges of an ordinary user."""
    rights.give_up()
    yield


@contextlib.contextmanager
def _timer(seconds: float | None, stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` after some seconds, unless the block ends before."""
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
    """A duration option in seconds: here a number without a unit is in seconds."""
    if text is None:
        return None
    from kafkasniff.filters import parse_duration

    return parse_duration(f"{text}s" if text[-1:].isdigit() else text) / 1e9
