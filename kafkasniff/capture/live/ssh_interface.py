"""An interface of another machine, captured by its tcpdump over ssh: `ssh://[user@]host[:port]/interface`.

ssh asks no questions (BatchMode): keys, an agent and known hosts are the user's. tcpdump skips the packets of the
connection that carries its output, which would otherwise be captured forever.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from typing import Final
from urllib.parse import unquote, urlsplit

from kafkasniff.capture.formats.pcap import HEADER_SIZE, Interface, PcapParser, is_pcap
from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.live.interface_socket import end_problems
from kafkasniff.errors import CaptureError, MissingPartError, UsageError
from kafkasniff.model import Problem
from kafkasniff.text.printable import printable

SCHEME: Final = "ssh://"
OPEN_SECONDS: Final = 30.0
"""How long the connection and the start of tcpdump may take."""
READ_BYTES: Final = 1 << 20
"""Bytes taken at a time."""
MAX_SAID: Final = 4096
"""Bytes of messages that are kept, the last ones."""
CLOSE_SECONDS: Final = 2.0
"""How long ssh may take to end before it is killed."""

_SCRIPT: Final = """set -- $SSH_CONNECTION
t=tcpdump; [ "$(id -u)" = 0 ] || t="sudo -n tcpdump"
e={expression}
f="${{1:+not (host $1 and tcp port $2)}}${{1:+${{e:+ and }}}}${{e:+($e)}}"
exec $t -i {interface} -s {snaplen} {promiscuous} -U --immediate-mode -w - ${{f:+"$f"}}"""
"""What runs there, in any POSIX shell. SSH_CONNECTION begins with the client's address and port (ssh(1))."""

_ADVICE: Final = {
    "Host key verification failed": "connect once by hand to check its host key",
    "Permission denied (": "ssh must log in without a password there: use a key or an agent",
    "sudo": "tcpdump needs root there: log in as root, or allow it in sudoers with NOPASSWD",
    "permission to capture": "tcpdump needs root there: log in as root, or allow it in sudoers with NOPASSWD",
    "tcpdump: not found": "install tcpdump there",
    "tcpdump: command not found": "install tcpdump there",
}
"""What to do, by a part of the message."""


def is_ssh(name: str) -> bool:
    """Whether an interface is on another machine."""
    return name.startswith(SCHEME)


class SshInterface:
    """Packets of one interface, number `capture` of a run.

    Raises UsageError if the name is not one, CaptureError if it cannot be captured, MissingPartError without ssh.
    """

    blocks: Final = 16
    backlog: Final = 0.0
    """Unknown: packets wait on the other machine."""
    poll_seconds: Final = None

    def __init__(
        self, name: str, capture: int, *, bpf: str | None, snaplen: int, buffer: int | None, promiscuous: bool
    ) -> None:
        if buffer is not None:
            raise UsageError("--buffer-size is for interfaces of this machine")
        self.name = name
        self.error: str | None = None
        """Why the capture ended by itself."""
        self._data = bytearray()
        self._said = b""
        self._read = 0
        """Bytes of the stream that were parsed."""
        self._notes: list[Problem] = []
        self._process = self._started(_command(name, bpf or "", snaplen, promiscuous=promiscuous))
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        for descriptor in (self._out, self._err):
            os.set_blocking(descriptor, False)
        try:
            self._parser = PcapParser(self._header(), name, capture)
        except BaseException:
            self.close()
            raise
        link = self._parser.interfaces[0].link
        self.decoded = Interface(link, capture, name)
        self.written = Interface(link, capture, name, snaplen)

    @staticmethod
    def _started(command: list[str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            # In a session of its own: Ctrl-C is for us, and ssh has no terminal to ask on.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
            )
        except FileNotFoundError:
            raise MissingPartError(f"{command[0]} is not installed") from None

    def _header(self) -> bytes:
        """The header of the stream."""
        deadline = time.monotonic() + OPEN_SECONDS
        while len(self._data) < HEADER_SIZE:
            left = deadline - time.monotonic()
            if left <= 0:
                raise CaptureError(f"{self.name}: nothing came within {OPEN_SECONDS:g} s{self._reason()}")
            select.select([self._out, self._err], [], [], left)
            self._listen()
            if not self._receive():
                # Messages may follow the end of the packets.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(CLOSE_SECONDS)
                self._listen()
                raise CaptureError(f"{self.name}{self._reason()}")
        head = bytes(self._data[:HEADER_SIZE])
        if not is_pcap(head):
            raise CaptureError(f"{self.name}: the shell there prints more than packets, such as a greeting")
        del self._data[:HEADER_SIZE]
        self._read = HEADER_SIZE
        return head

    def _receive(self) -> bool:
        """Take what is there; False at the end."""
        try:
            more = os.read(self._out, READ_BYTES)
        except BlockingIOError:
            return True
        self._data += more
        return bool(more)

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._err, MAX_SAID):
                self._said = (self._said + more)[-MAX_SAID:]

    def _reason(self) -> str:
        """`: MESSAGE (ADVICE)`, from what ssh or tcpdump said."""
        lines = [line for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        if not lines:
            return ""
        for sign, advice in _ADVICE.items():
            for line in lines:
                if sign in line:
                    return f": {printable(line.strip())} ({advice})"
        return f": {printable(lines[-1].strip())}"

    @property
    def packets(self) -> int:
        """Packets captured so far."""
        return self._parser.packets

    def fileno(self) -> int:
        """Becomes readable when there are packets."""
        return self._out

    def read_frames(self) -> Frames | None:
        """The next packets; None if there are none yet."""
        if self.error is not None:
            return None
        self._listen()
        size = len(self._data)
        ended = not self._receive()
        if len(self._data) == size and not ended:
            return None
        parsed = self._parser.parse(bytes(self._data), self._read, ended=ended)
        del self._data[: parsed.consumed]
        self._read += parsed.consumed
        self._notes += [value for _, value in parsed.notes if isinstance(value, Problem)]
        if ended:
            self.error = f"{self.name}: the capture ended by itself{self._reason()}"
        return Frames.plain(parsed.packets) if parsed.packets is not None else None

    def check(self) -> bool:
        """Whether the capture continues; `read_frames` finds out."""
        return self.error is None

    def resume(self) -> bool:
        """Never: `live` may not connect any more."""
        return False

    def counts(self) -> tuple[int, int]:
        """(packets, lost packets among them) since the start; tcpdump does not say what it lost."""
        return self.packets, 0

    def fresh_loss(self) -> Problem | None:
        """Unknown."""
        return None

    def problems(self) -> list[Problem]:
        """Reports at the end."""
        return [*self._notes, *end_problems(self.name, self.error, self.packets, self.counts())]

    def close(self) -> None:
        """End ssh, and with it tcpdump."""
        process = self._process
        if process.stdout is None or process.stdout.closed:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if process.stderr is not None:
            process.stderr.close()


def _command(name: str, expression: str, snaplen: int, *, promiscuous: bool) -> list[str]:
    """The ssh command line. Raises UsageError."""
    try:
        parts = urlsplit(name)
        port = parts.port
    except ValueError:
        raise UsageError(f"{printable(name)} is not an address such as ssh://broker-1/eth0") from None
    host, interface = parts.hostname, unquote(parts.path.removeprefix("/"))
    # Names that begin with a minus would be options.
    if not host or not interface or host.startswith("-") or interface.startswith("-") or "/" in interface:
        raise UsageError(f"{printable(name)} is not an address such as ssh://broker-1/eth0")
    if parts.password is not None or parts.query or parts.fragment:
        raise UsageError("ssh:// takes no password: use a key or an agent")
    script = _SCRIPT.format(
        expression=shlex.quote(expression),
        interface=shlex.quote(interface),
        snaplen=snaplen,
        promiscuous="" if promiscuous else "-p",
    )
    return [
        *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"),
        *(() if port is None else ("-p", str(port))),
        *(() if not parts.username else ("-l", unquote(parts.username))),
        *("--", host, f"sh -c {shlex.quote(script)}"),
    ]
