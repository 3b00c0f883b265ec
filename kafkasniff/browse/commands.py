"""Commands of kafkasniff that show or write what the explorer shows, run as a process; their reports in lines.

Also what the explorer puts into the clipboard: an exchange as JSON, as hex, or as such a command.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from kafkasniff.browse.index import Row
from kafkasniff.errors import UsageError
from kafkasniff.filters.tree import parse_moment
from kafkasniff.model import Exchange, Message
from kafkasniff.redact.message import Blanker
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.text.printable import printable, wrapped

WAIT_SECONDS: Final = 0.1
"""Interval at which a command is checked: has it ended, or should it?"""
FINDINGS, BROKEN = 1, 4
"""Exit codes of commands that have done what they were asked: with findings, or with a broken capture."""
_OUTPUTS: Final = "name it .jsonl, .pcapng or .pcap, or for Parquet tables a folder: end it with /"


class Commands(msgspec.Struct, frozen=True):
    """Commands for the captures in the explorer."""

    captures: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    """Options that decide how captures are read, as given by the user."""
    selection: tuple[str, ...] = ()
    """Options that select exchanges, as given by the user."""
    lasting: bool = True
    """The captures are not removed at the end."""
    exports: tuple[str, ...] = ()
    """Exports, instead of captures."""

    def browse(self) -> list[str]:
        """Show the same list."""
        return self._with_captures("browse", *self.reading, *self.selection)

    def decode(self, connection: int, correlation_id: int) -> list[str]:
        """Show one exchange with its bodies."""
        chosen = (f"--connection={connection}", f"--correlation-id={correlation_id}")
        return self._with_captures("decode", "-v", *self.reading, *chosen)

    def write(self, path: str, expression: str) -> list[str]:
        """Write what the list shows; the name determines the format. Raises UsageError."""
        if not self.captures:
            raise UsageError("only captures can be written, not an export")
        start = self._selected(expression)
        if not path or os.path.lexists(path):
            raise UsageError(f"{path} exists: give another name" if path else _OUTPUTS)
        if path.endswith("/"):
            return self._with_captures("export", *start, f"--output={path}")
        if path.lower().endswith(".jsonl"):
            return self._with_captures("decode", *start, "--format=json", f"--output={path}")
        if path.lower().endswith((".pcapng", ".pcap")):
            return self._with_captures("decode", *start, f"--write-matching={path}")
        raise UsageError(f"{path}: {_OUTPUTS}")

    def report(self, name: str, expression: str) -> list[str]:
        """Report on the listed exchanges: by `check`, as JSON, or by another command, as text."""
        form = "--format=json" if name == "check" else "--color=never"
        return self._with_captures(name, *self._selected(expression), form)

    def _selected(self, expression: str) -> list[str]:
        """The options that select what the list shows."""
        return [*self.reading, *self.selection, *([f"--filter={expression}"] if expression else []), "-q"]

    def _with_captures(self, *words: str) -> list[str]:
        names = [f"./{name}" if name.startswith("-") else name for name in (*self.captures, *self.exports)]
        return ["kafkasniff", *words, *names]


class Done(NamedTuple):
    """How a command ended."""

    output: bytes
    wrong: str | None = None
    """What went wrong, escaped."""
    broken: bool = False
    """A capture is broken: all that can be read of it was read."""


def program(command: list[str]) -> list[str]:
    """A command of kafkasniff as a process. `-P`: it imports no modules from the current folder."""
    return [sys.executable, "-P", "-m", *command]


def run_command(
    command: list[str], *, stopped: Callable[[], bool], width: int | None = None, folder: str | None = None
) -> Done:
    """Run a command of kafkasniff until its end, or until `stopped`.

    `width`: columns of what it prints; `folder`: for its temporary files.

    A process, since it may take as long as reading the captures, and would slow the screen down.
    """
    environment = dict(os.environ)
    environment |= {} if width is None else {"COLUMNS": str(width)}
    environment |= {} if folder is None else {"TMPDIR": folder}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program(command), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
    ) as process:
        while True:
            try:
                output, said = process.communicate(timeout=WAIT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if stopped():
                    process.terminate()
    broken = process.returncode == BROKEN
    if broken or process.returncode in {0, FINDINGS}:
        return Done(output, None, broken)
    lines = said.decode("utf-8", "replace").splitlines()
    return Done(output, printable(lines[-1]) if lines else f"exit code {process.returncode}")


ReportName = Literal["check", "stats", "timing"]
REPORTS: Final[tuple[ReportName, ...]] = get_args(ReportName)
MAX_LINES: Final = 20_000
"""Maximum number of lines that are shown of a report."""
_INDENT: Final = 9


class ReportLine(NamedTuple):
    """A line, and the filter expression for the exchanges that it is about."""

    text: str
    """Escaped."""
    evidence: str = ""
    severity: str | None = None
    """That of the finding, in the lines of its title, of which the first begins with it; else None."""


class _Evidence(msgspec.Struct):
    connection_id: int
    exchange_id: int | None
    time: str | None
    connection: int | None
    exchange: int | None


class _Finding(msgspec.Struct):
    detector: str
    severity: str
    title: str
    meaning: str
    advice: str
    count: int
    evidence: list[_Evidence]


class _Check(msgspec.Struct):
    findings: list[_Finding]
    notes: list[str]


_EXCHANGE: Final = re.compile(rb"(?:\A....|\n)[^\n#]*#(\d+)  corr ", re.DOTALL)
"""The number of an exchange in a line of a comment (`cli.running.write_matching`), the first option of a block."""


class EvidenceTitles:
    """Titles of findings, for comments on the packets that are their evidence.

    `answer`: of `check` as JSON, about the capture with these packets.
    """

    def __init__(self, answer: bytes) -> None:
        self._times: dict[int, list[tuple[int | None, str]]] = {}
        """Exchanges and titles by the time of the packet that completes the request, or begins the connection."""
        self._exchanges: dict[int, list[str]] = {}
        """Titles of the exchanges of which that packet was seen."""
        for finding in msgspec.json.decode(answer, type=_Check).findings:
            for evidence in finding.evidence:
                moment = None if evidence.time is None else parse_moment(evidence.time)
                if isinstance(moment, int):
                    title = f"{finding.severity}: {printable(finding.title)}"
                    self._times.setdefault(moment, []).append((evidence.exchange, title))

    def of(self, _packet: int, time_ns: int, options: bytes) -> bytes | None:
        """The comment on a packet that has these options; packets come in their order."""
        found: list[str] = []
        numbers = {int(number) for number in _EXCHANGE.findall(options)} if self._times else set()
        for number in numbers & self._exchanges.keys():
            found += self._exchanges[number]
        for exchange, title in self._times.get(time_ns, ()):
            found.append(title)
            if exchange in numbers:
                self._exchanges.setdefault(exchange, []).append(title)
        return "\n".join(dict.fromkeys(found)).encode() or None


def report(
    name: ReportName,
    commands: Commands,
    expression: str,
    width: int,
    *,
    numbers: Mapping[int, int],
    stopped: Callable[[], bool],
) -> list[ReportLine]:
    """Run a command for the exchanges that a filter selects, and return its lines.

    `numbers`: those of connections in the list, by `connection_id`.
    """
    done = run_command(commands.report(name, expression), stopped=stopped, width=width)
    if done.wrong is not None:
        return [ReportLine(done.wrong)]
    if name == "check":
        lines = list(_check_lines(msgspec.json.decode(done.output, type=_Check), width, numbers))
    else:
        lines = [ReportLine(printable(one, backslashes=False)) for one in done.output.decode().splitlines()]
    return lines[:MAX_LINES]


def _check_lines(check: _Check, width: int, numbers: Mapping[int, int]) -> Iterator[ReportLine]:
    if not check.findings:
        yield ReportLine("no findings")
    for finding in check.findings:
        shown = [
            found for found in (_numbered(evidence, numbers) for evidence in finding.evidence) if found is not None
        ]
        evidence = _expression(shown)
        for text in _wrapped(f"{finding.severity:<{_INDENT}}{finding.title}", width, 0):
            yield ReportLine(text, evidence, finding.severity)
        for text in (*_wrapped(finding.meaning, width), *_wrapped(f"Try: {finding.advice}", width)):
            yield ReportLine(text, evidence)
        does = (
            f"Enter lists {len(shown):,} of {finding.count:,}"
            if evidence
            else f"{finding.count:,}, no exchanges to list"
        )
        yield ReportLine(f"{'':{_INDENT}}{finding.detector}: {does}", evidence)
        yield ReportLine("", evidence)
    for note in check.notes:
        yield from map(ReportLine, _wrapped(f"note: {note}", width, 0))


def _wrapped(text: str, width: int, indent: int = _INDENT) -> Iterator[str]:
    """Lines of a text; the first one is indented by `indent`, the others by `_INDENT`."""
    return wrapped(" " * indent + printable(text, backslashes=False), max(width, 2 * _INDENT), _INDENT - indent)


def _numbered(evidence: _Evidence, numbers: Mapping[int, int]) -> _Evidence | None:
    """Evidence with the number of its connection if it is a whole one of an export; None if that has no exchanges."""
    if evidence.exchange_id is not None or evidence.connection is not None:
        return evidence
    number = numbers.get(evidence.connection_id)
    return None if number is None else msgspec.structs.replace(evidence, connection=number)


def _expression(evidence: list[_Evidence]) -> str:
    """The filter for the exchanges, or whole connections, that show a finding.

    Exchanges of an export have no numbers, so the times of their requests select them, to the nanosecond.
    """
    exchanges = [str(one.exchange) for one in evidence if one.exchange is not None]
    connections = [str(one.connection) for one in evidence if one.exchange is None and one.connection is not None]
    times = [one.time for one in evidence if one.connection is None and one.exchange_id is not None and one.time]
    parts = [
        f"{field} in ({', '.join(numbers)})"
        for field, numbers in (("exchange", exchanges), ("connection", connections))
        if numbers
    ]
    return " or ".join((*parts, *(f"time == {time}" for time in dict.fromkeys(times))))


MAX_CLIPBOARD: Final = 74_000
"""Maximum number of characters for the clipboard: common terminals accept 100 kB of base64 (OSC 52)."""
MAX_ARGUMENT: Final = 100_000
"""Longest hex in a command: Linux accepts arguments of 128 KiB (MAX_ARG_STRLEN)."""

_BLANKER: Final = Blanker(secrets=False, payload=True)


class Copy(NamedTuple):
    """A form, and how its text is made."""

    title: str
    make: Callable[[], str]


def copies(exchange: Exchange, row: Row, commands: Commands) -> Iterator[Copy]:
    """The forms that an exchange has."""
    messages = [message for message in (exchange.request, exchange.response) if message is not None]
    yield Copy("JSON", partial(_json, messages, row))
    for message in messages:
        if message.frame is not None:
            yield Copy(f"{message.type} in hex", partial(_hex, message))
            if _fits_command(message):
                yield Copy(f"{message.type} as a decode-bytes command", partial(_decode_bytes, message))
    number = messages[0].correlation_id
    if commands.captures and commands.lasting and number is not None:
        yield Copy("decode command", partial(shlex.join, commands.decode(row.connection, number)))


def _json(messages: list[Message], row: Row) -> str:
    """The lines of `decode --format json`, but without the number of the exchange, which only a whole reading knows."""
    output = io.BytesIO()
    sink = JsonSink(output)
    for message in messages:
        sink.write(msgspec.structs.replace(message, exchange=None, connection=row.connection))
    sink.close()
    return output.getvalue().decode()


def _shown(message: Message) -> bytes:
    """The bytes of a message; those of secrets are blank, as with `--write-matching`."""
    data = message.frame
    assert data is not None
    visible, _ = _BLANKER.visible(data, message)
    if visible is None:
        return data
    cut = len(data) != message.size
    return bytes(_BLANKER.message(data, 0, len(data), message, request=message.type == "request", cut=cut))


def _hex(message: Message) -> str:
    return _shown(message).hex()


def _fits_command(message: Message) -> bool:
    known = message.type == "request" or message.api_version is not None
    return known and message.frame is not None and 2 * len(message.frame) <= MAX_ARGUMENT


def _decode_bytes(message: Message) -> str:
    command = ["kafkasniff", "decode-bytes"]
    if message.type == "response":
        command += ["--response", "--api", message.api or str(message.api_key), "--version", str(message.api_version)]
    return shlex.join([*command, _hex(message)])
