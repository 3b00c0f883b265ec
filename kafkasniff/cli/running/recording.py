"""`live --recorder`: writes a case, with the packets of the last minutes, when something is found or asked for.

`--exec` and `--webhook` pass each finding, once, to a command or to a web server, as JSON. A thread does it, one
finding at a time: the capture never waits, and never ends because of a failure.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from kafkasniff.cli.options.shared_options import SEVERITIES, Command, stacked
from kafkasniff.cli.running.browsing import words_of
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from kafkasniff.capture.formats.pcap import Interface
    from kafkasniff.live.findings import LiveFindings
    from kafkasniff.live.packet_filter import FlightRecorder
    from kafkasniff.live.snapshot import FindingRow
    from kafkasniff.packets import PacketBatch

SECONDS: Final = 10.0
"""How long a command or a server may take, and how long the end of a run waits for what is due."""
MAX_NOTICES: Final = 100
"""Maximum number of findings of a run that are passed on: more are one trouble, and would be a flood of messages."""
LOOK_SECONDS: Final = 0.5
"""Minimum time between two looks for new findings."""
TOKEN: Final = "KAFKASNIFF_WEBHOOK_TOKEN"
"""Environment variable with the token that a server requires."""


def notify_options(command: Command) -> Command:
    """`--exec` and `--webhook`."""
    return stacked(
        command,
        [
            click.option(
                "--exec",
                "execute",
                metavar="CMD",
                help="Run a shell command for each finding (`--on`), with the finding as JSON on its stdin.",
            ),
            click.option("--webhook", metavar="URL", help="Post each finding (`--on`) as JSON to this address."),
        ],
    )


def take_notifier(options: dict[str, Any], environ: Any) -> Notifier | None:
    """The notifier of the options, two of which are removed; None if nobody is to be notified. Raises UsageError."""
    command, url = options.pop("execute"), options.pop("webhook")
    if command is None and url is None:
        return None
    webhook = None if url is None else _Webhook(url, environ.get(TOKEN))
    severity: str = options["on"] or SEVERITIES[0]
    if severity not in SEVERITIES:
        raise UsageError("--exec and --webhook need findings: --on error, warning or note")
    return Notifier(command, webhook, SEVERITIES[: SEVERITIES.index(severity) + 1])


def notice(row: FindingRow, captures: Sequence[str]) -> bytes:
    """A finding as JSON. Its sentences are safe to print."""
    return msgspec.json.encode(
        {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "captures": list(captures),
            "severity": row.severity,
            "detector": row.detector,
            "title": row.title,
            "meaning": row.meaning,
            "advice": row.advice,
            "count": row.count,
            "connections": row.connections,
        }
    )


class _Webhook:
    """A web server. Raises UsageError if the address is not one."""

    def __init__(self, url: str, token: str | None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
        except ValueError:
            port = 0
        if not port or not parts.hostname or parts.scheme not in {"http", "https"}:
            raise UsageError("--webhook needs an address such as https://alerts.example/kafka")
        if parts.username is not None or parts.password is not None:
            # It would be visible in the list of processes.
            raise UsageError(f"--webhook: no password in the address; set {TOKEN}")
        self.port = port
        self.host = parts.hostname
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secure = parts.scheme == "https"
        self._headers = {"Content-Type": "application/json", "User-Agent": "kafkasniff"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def post(self, body: bytes) -> str:
        """Send; what went wrong, without the address, which may be a secret."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=SECONDS)
        try:
            connection.request("POST", self._path, body, self._headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return printable(str(error) or type(error).__name__)
        finally:
            connection.close()
        # Redirects are errors: neither findings nor the token are for another server.
        return "" if 200 <= status < 300 else f"HTTP {status}"


class Notifier:
    """Looks for new findings between two batches, and passes them on. `severities`: those that count."""

    def __init__(self, command: str | None, webhook: _Webhook | None, severities: Sequence[str]) -> None:
        self._command = command
        self._webhook = webhook
        self._severities = severities
        self.ports = [] if webhook is None else [webhook.port]
        """TCP ports that it connects to."""
        self._seen: set[tuple[str, str]] = set()
        self._due: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._look_at = 0.0

    def batches(
        self,
        batches: Iterator[PacketBatch],
        findings: LiveFindings | None,
        captures: Sequence[str],
        say: Callable[[str], None],
    ) -> Iterator[PacketBatch]:
        """The batches of a run. `say`: prints a line about a failure."""
        try:
            for batch in batches:
                self._look(findings, captures, say)
                yield batch
            self._look_at = 0.0
            self._look(findings, captures, say)
        finally:
            if self._thread is not None:
                self._due.put(None)
                self._thread.join(SECONDS)

    def _look(self, findings: LiveFindings | None, captures: Sequence[str], say: Callable[[str], None]) -> None:
        now = time.monotonic()
        if findings is None or now < self._look_at or len(self._seen) > MAX_NOTICES:
            return
        self._look_at = now + LOOK_SECONDS
        for row in findings.shown().rows:
            if row.severity not in self._severities or (row.detector, row.about) in self._seen:
                continue
            self._seen.add((row.detector, row.about))
            if len(self._seen) > MAX_NOTICES:
                say(f"more than {MAX_NOTICES} findings: --exec and --webhook do not get later ones")
                return
            self._due.put(notice(row, captures))
            if self._thread is None:
                # Begins after rights were dropped, which holds for threads.
                self._thread = threading.Thread(target=self._run, args=(say,), name="notify", daemon=True)
                self._thread.start()

    def _run(self, say: Callable[[str], None]) -> None:
        while (body := self._due.get()) is not None:
            if self._command is not None and (wrong := _execute(self._command, body)):
                say(f"--exec: {wrong}")
            if self._webhook is not None and (wrong := self._webhook.post(body)):
                say(f"--webhook {self._webhook.host}: {wrong}")


def _execute(command: str, body: bytes) -> str:
    """Run a command with this input; what went wrong."""
    try:
        with subprocess.Popen(
            command,
            shell=True,  # the user's own command line
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                process.communicate(body, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                return f"the command took longer than {SECONDS:g} s and was ended"
    except OSError as error:
        return f"cannot run the command: {error.strerror or error}"
    return "" if process.returncode == 0 else f"the command ended with exit code {process.returncode}"


NEVER: Final = "never"
_READING: Final = frozenset({"ports", "max_frame", "keylog", "topic_ids"})
"""Options that the commands of a case take, too."""
_RAW: Final = "raw.pcapng"
"""The packets with their secrets; removed once the others are written."""
_PACKETS: Final = "packets.pcapng"
_FINDINGS: Final = "findings.json"
_ASKED: Final = getattr(signal, "SIGUSR1", None)
"""The signal that asks for a case; None on Windows."""
MIN_SECONDS: Final = 1.0


def recorder_options(command: Command) -> Command:
    """`--recorder`, `--cases`, `--on`."""
    return stacked(
        command,
        [
            click.option(
                "--recorder",
                metavar="DURATION",
                help="Keep the packets of Kafka connections of the last 5m (or 30s …) in memory, in half of --memory. "
                "A finding, or SIGUSR1, writes them as a case: packets without secrets, findings, report.",
            ),
            click.option("--cases", metavar="DIR", help="Folder for cases [default: the current one]."),
            click.option(
                "--on",
                type=click.Choice([*SEVERITIES, NEVER]),
                help="Severity of findings for cases, --exec and --webhook [default: error]; never: only SIGUSR1.",
            ),
        ],
    )


def take_recording(
    options: dict[str, Any], seconds_of: Callable[[str | None], float | None], *, notifies: bool = False
) -> Recording | None:
    """The recorder of the options, which are removed from `options`; None without `--recorder`. Raises UsageError.

    `notifies`: `--on` is for others, too.
    """
    seconds = seconds_of(options.pop("recorder"))
    folder, on = options.pop("cases"), options.pop("on")
    if seconds is None:
        if folder is not None:
            raise UsageError("--cases needs --recorder DURATION")
        if on is not None and not notifies:
            raise UsageError("--on needs --recorder, --exec or --webhook")
        return None
    if seconds < MIN_SECONDS:
        raise UsageError(f"--recorder: at least {MIN_SECONDS:g} s")
    if options["write"] is not None:
        raise UsageError("--recorder and --write cannot be combined")
    return Recording(folder or ".", seconds, on or SEVERITIES[0], words_of(options, _READING))


class Recording:
    """Watches for a reason to write a case.

    `severity`: the least of a finding that is one, or "never"; `reading`: options of the commands that read a case.
    In `seconds`, at most one finding is a reason, since the next case would have the same packets.
    """

    def __init__(self, folder: str, seconds: float, severity: str, reading: Sequence[str]) -> None:
        self.folder = folder
        self.seconds = seconds
        self._severities = () if severity == NEVER else SEVERITIES[: SEVERITIES.index(severity) + 1]
        self._reading = tuple(reading)
        self._asked = False
        self._seen: set[tuple[str, str]] = set()
        self._next = 0.0
        self._writing: threading.Thread | None = None
        self._recorder: FlightRecorder | None = None
        self.cases = 0
        """Cases written, or being written."""

    @property
    def examines(self) -> bool:
        """Whether it needs findings."""
        return bool(self._severities)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block, the signal asks for a case. The end waits for the one that is being written."""
        if _ASKED is None or threading.current_thread() is not threading.main_thread():
            yield
        else:
            before = signal.signal(_ASKED, lambda *_: self.ask())
            try:
                yield
            finally:
                signal.signal(_ASKED, before)
        if self._writing is not None:
            self._writing.join()

    def recorder(self, interfaces: Sequence[Interface], size: int, bpf: str | None) -> FlightRecorder:
        """The memory for packets, of this many bytes."""
        from kafkasniff.capture.write.capture_writer import section
        from kafkasniff.live.packet_filter import FlightRecorder

        self._recorder = FlightRecorder(section(interfaces, bpf=bpf), self.seconds, size)
        return self._recorder

    def ask(self) -> None:
        """Ask for a case."""
        self._asked = True

    def batches(
        self,
        batches: Iterator[PacketBatch],
        findings: LiveFindings | None,
        *,
        say: Callable[[str], None],
        payload: bool,
    ) -> Iterator[PacketBatch]:
        """The batches of a run; between two of them, a case may begin.

        `say`: prints a line about each case; `payload`: a case shows it.
        """
        for batch in batches:
            # Now the packets of the one before are kept.
            self._look(findings, say, payload=payload)
            yield batch
        self._look(findings, say, payload=payload)

    def _look(self, findings: LiveFindings | None, say: Callable[[str], None], *, payload: bool) -> None:
        now = time.monotonic()
        if self._writing is not None and self._writing.is_alive():
            return
        reason = "SIGUSR1" if self._asked else self._finding(findings) if now >= self._next else None
        if reason is None:
            return
        if not self._asked:
            self._next = now + self.seconds
        self._asked = False
        self.cases += 1
        assert self._recorder is not None
        pieces = self._recorder.pieces()
        self._writing = threading.Thread(target=self._write, args=(pieces, reason, say, payload), name="case")
        self._writing.start()

    def _finding(self, findings: LiveFindings | None) -> str | None:
        """The title of a finding that is severe enough and new; None without any."""
        if findings is None or not self._severities:
            return None
        rows = [finding_row for finding_row in findings.shown().rows if finding_row.severity in self._severities]
        new = [finding_row for finding_row in rows if (finding_row.detector, finding_row.about) not in self._seen]
        self._seen.update((finding_row.detector, finding_row.about) for finding_row in new)
        return f"{new[0].detector}: {new[0].title}" if new else None

    def _write(self, pieces: list[bytes], reason: str, say: Callable[[str], None], payload: bool) -> None:
        """Write a case. Runs in a thread; the commands are processes, so the capture continues."""
        from kafkasniff.browse.commands import run_command
        from kafkasniff.text.printable import printable

        name = f"case-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{self.cases}"
        place = Path(self.folder, name)
        raw, packets = str(place / _RAW), str(place / _PACKETS)
        findings = str(place / _FINDINGS)
        hides = () if payload else ("--no-payload",)
        commands = {
            _PACKETS: ("decode", *hides, f"--write-matching={packets}", raw),
            _FINDINGS: ("check", "--format=json", "--fail-on=never", f"--output={findings}", packets),
            "report.html": ("report", f"--output={place / 'report.html'}", packets),
        }
        try:
            place.mkdir(mode=0o700)
            with open(os.open(raw, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.writelines(pieces)
            for made, (command, *words) in commands.items():
                done = run_command(
                    ["kafkasniff", command, "--quiet", *self._reading, *words], stopped=lambda: False, folder=str(place)
                )
                if done.wrong is not None:
                    say(f"{place}: no {made}: {done.wrong.removeprefix('kafkasniff: ')}")
                elif made == _FINDINGS:
                    _add_titles(packets, findings)
            (place / "reason.txt").write_text(f"{printable(reason)}\n", encoding="utf-8")
        except OutputError as error:
            say(str(error))
        except OSError as error:
            say(f"cannot write {place}: {error.strerror or error}")
        else:
            say(f"wrote {place} ({reason})")
        finally:
            with contextlib.suppress(OSError):
                os.unlink(raw)


def _add_titles(packets: str, findings: str) -> None:
    """Add the titles of findings to the comments of packets that are their evidence. Raises OSError, OutputError."""
    from kafkasniff.browse.commands import EvidenceTitles
    from kafkasniff.capture.write.capture_writer import commented
    from kafkasniff.capture.write.output_files import replace_file

    with open(packets, "rb") as file:
        replace_file(packets, commented(file, EvidenceTitles(Path(findings).read_bytes()).of))
