"""Runs the explorer of captures: of files, of what comes from a pipe, and of an interface."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import tempfile
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.capture_options import take_interfaces
from kafkasniff.cli.options.option_groups import (
    FilterOptions,
    decoding_arguments,
    make_catalog,
    take_predicate,
)
from kafkasniff.cli.options.record_options import take_schemas
from kafkasniff.cli.options.shared_options import refuse_options
from kafkasniff.cli.running.privileges import take_rights
from kafkasniff.cli.running.sources import open_export
from kafkasniff.errors import MissingExtraError, MissingPartError, UsageError

if TYPE_CHECKING:
    from kafkasniff.browse.commands import Commands
    from kafkasniff.browse.reading import GrowingCapture

READING: Final = frozenset({"ports", "max_frame", "keylog", "memory", "topic_ids", "registry", "schemas"})
"""Options that decide how captures are read."""
CAPTURING: Final = frozenset(
    {"interfaces", "snaplen", "buffer_size", "promiscuous", "reopen", "user", "keep_root", "duration", "write_all"}
)
"""Options of `live` that are passed on to the process that captures."""
TERMINAL: Final = "/dev/tty"
SERVED: Final = "TEXTUAL_DRIVER"
"""The environment variable by which `--serve` has an explorer speak with a browser instead of a terminal."""


def check_screen(environment: Environment) -> None:
    """Raise MissingExtraError or UsageError if the explorer cannot be shown."""
    _check_package("textual")
    if not (environment.stdout_tty or environment.environ.get(SERVED)):
        raise UsageError("browse needs a terminal; `kafkasniff decode` writes to files and pipes")


def _check_package(name: str) -> None:
    if find_spec(name) is None:
        raise MissingExtraError("browse", name.replace("_", "-"), "browse")


def explore(
    environment: Environment,
    captures: tuple[str, ...],
    options: dict[str, Any],
    *,
    title: str,
    growing: GrowingCapture | None = None,
    lasting: bool = True,
    export: str | None = None,
    port: int | None = None,
) -> int:
    """Show captures, or an export, until the user quits.

    `growing`: the only capture, which is still written; `lasting`: it is kept. `port`: show it to browsers instead.
    """
    schemas = take_schemas(dict(options), environment.environ)
    if schemas is not None and export is not None:
        raise UsageError("--registry and --schema need captures; an export has its decoded values")
    if schemas is not None and schemas.registry is not None:
        # Commands are shown, without passwords.
        options["registry"] = schemas.registry.name
    again = {"reading": words_of(options, READING), "selection": words_of(options, frozenset(FilterOptions._fields))}
    predicate = take_predicate(options)
    catalog = make_catalog(options)

    def arguments() -> dict[str, Any]:
        return decoding_arguments(options)

    arguments()  # an invalid key log is reported before the screen opens

    from kafkasniff.browse.commands import Commands
    from kafkasniff.browse.filter_texts import SavedFilters, filters_file
    from kafkasniff.browse.reading import CaptureReading, ExchangeReading
    from kafkasniff.browse.screen.app import Explorer

    # A browser's user may look, but not write.
    is_served = bool(environment.environ.get(SERVED))
    saved = SavedFilters(None if is_served else filters_file(environment.environ))
    reading: ExchangeReading
    if export is None:
        reading = CaptureReading(captures, arguments, catalog, growing, schemas)
        commands = Commands(captures, **again, lasting=lasting)
    else:
        # Exports need Arrow's data sets, which import pandas if it is installed: 50 MB.
        from kafkasniff.browse.export_reading import ExportReading

        reading = ExportReading(open_export(export, "browse needs"))
        commands = Commands(exports=(export,), selection=again["selection"])
    if port is not None:
        return _serve(environment, commands, title, port)
    few = not is_served and _has_few_colours(environment.environ)
    if is_served:
        threading.Thread(target=_end_with_server, daemon=True).start()
    app = Explorer(
        reading, predicate, title=title, commands=commands, saved=saved, few_colours=few, looks_only=is_served
    )
    if environment.owns_process:
        collect_often()
    with environment.interrupts.stopping(app.exit):
        app.run()
    if app.return_code:
        return Exit.INTERNAL
    return Exit.BROKEN if app.is_broken else Exit.OK


def collect_often() -> None:
    """Collect garbage more often than other commands: what Textual draws holds cycles, which would take up to 25 MB.

    It costs a few ms each time, since what is there already is never examined again.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def _serve(environment: Environment, commands: Commands, title: str, port: int) -> int:
    """Show the explorer to browsers on this machine until a signal. Raises UsageError, OutputError."""
    _check_package("textual_serve")

    from kafkasniff.browse.serving import ExplorerServer

    server = ExplorerServer(commands.browse(), title=title, port=port, say=environment.say)
    environment.stdout.write(f"{server.address}\n".encode())
    environment.stdout.flush()
    environment.say("serving browsers on this machine, Ctrl-C to stop")
    with environment.interrupts.stopping(server.stop):
        server.run()
    return Exit.OK


def _end_with_server() -> None:
    """End this process, an explorer for a browser, when the server has ended, however it did: its pipe closes."""
    pipe = select.poll()
    pipe.register(0, 0)
    pipe.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def _has_few_colours(environ: Mapping[str, str]) -> bool:
    """Whether the terminal has 16 colours, as far as it says."""
    return "256color" not in environ.get("TERM", "") and environ.get("COLORTERM") not in {"truecolor", "24bit"}


def words_of(options: Mapping[str, Any], names: Container[str]) -> tuple[str, ...]:
    """The given options with these names, as words of a command line."""
    words: list[str] = []
    for parameter in click.get_current_context().command.params:
        value = options.get(parameter.name or "") if parameter.name in names else None
        if not value:
            continue
        option = parameter.opts[-1]
        words += (
            [option] if value is True else [f"{option}={one}" for one in (value if parameter.multiple else [value])]
        )
    return tuple(words)


@contextlib.contextmanager
def piped_capture(environment: Environment) -> Iterator[GrowingCapture]:
    """What comes from stdin, as a file. The terminal becomes stdin, for the keys. Raises UsageError."""
    from kafkasniff.browse.reading import CopiedPipe

    if environment.stdin_tty:
        raise UsageError("stdin is a terminal: pipe a capture into it")
    pipe: BinaryIO = environment.stdin
    if environment.owns_process:
        pipe = os.fdopen(os.dup(0), "rb", buffering=0)
        try:
            terminal = os.open(TERMINAL, os.O_RDWR)
        except OSError as error:
            raise UsageError(f"browse needs a terminal for the keys: {TERMINAL}: {error.strerror}") from error
        os.dup2(terminal, 0)
        os.close(terminal)
    capture = CopiedPipe(pipe)
    try:
        yield capture
    finally:
        capture.close()


def browse_live(environment: Environment, options: dict[str, Any], bpf: Sequence[str]) -> int:
    """Show what a process of its own captures and writes to a file, with the options of `live`.

    Raises UsageError, MissingPartError, OutputError.
    """
    check_screen(environment)
    has_effect = CAPTURING | READING | {*FilterOptions._fields, "write", "browse", "verbose", "bpf"}
    refuse_options("cannot be combined with --browse", other_than=has_effect)
    words, interfaces = words_of(options, CAPTURING), take_interfaces(options)
    named: str | None = options["write"]
    if named is not None and os.path.lexists(named):
        raise UsageError(f"--write {named}: it exists; give another name")
    rights = take_rights(options, environment)

    from kafkasniff.browse.reading import LiveCapture

    with contextlib.ExitStack() as around:
        folder: Path | None = None
        if named is None:
            with rights.acting():
                folder = Path(tempfile.mkdtemp(prefix="kafkasniff-"))
        path = Path(named or "") if folder is None else folder / "live.pcapng"
        if rights.name is not None:
            words = (*(word for word in words if not word.startswith("--user=")), f"--user={rights.name}")
        command = ["kafkasniff", "live", "-q", *words, *words_of(options, READING), f"--write={path}", "--", *bpf]
        capture = LiveCapture(command, path, folder)
        around.callback(capture.close)
        if not capture.begin():
            reason = capture.said.removeprefix("kafkasniff: ") or "the capture has not begun"
            raise UsageError(reason) if capture.exit_code == Exit.USAGE else MissingPartError(reason)
        rights.become()
        capture.watch()
        return explore(
            environment,
            (str(path),),
            options,
            title=", ".join(interfaces),
            growing=capture,
            lasting=folder is None,
        )
