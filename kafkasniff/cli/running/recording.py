"""`live --recorder`: writes a case, with the packets of the last minutes, when something is found or asked for."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.options.shared_options import SEVERITIES, Command, stacked
from kafkasniff.cli.running.browsing import words_of
from kafkasniff.errors import OutputError, UsageError

if TYPE_CHECKING:
    from kafkasniff.capture.formats.pcap import Interface
    from kafkasniff.live.findings import LiveFindings
    from kafkasniff.live.packet_filter import FlightRecorder
    from kafkasniff.packets import PacketBatch

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
