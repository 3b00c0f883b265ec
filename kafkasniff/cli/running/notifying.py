"""`live --exec` and `--webhook`: passes each finding, once, to a command or to a web server, as JSON.

A thread does it, one finding at a time: the capture never waits, and never ends because of a failure.
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
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from kafkasniff.cli.options.shared_options import SEVERITIES, Command, stacked
from kafkasniff.errors import UsageError
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from kafkasniff.live.findings import LiveFindings
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
