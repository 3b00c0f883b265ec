"""tcpdump or dumpcap on loopback, started and stopped around one client's run."""

from __future__ import annotations

import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from .distribution import SetupError

START_TIMEOUT_S = 10.0
QUIET_S = 1.5
"""A capture ends when its file has not grown for this long after the client's end: FINs and late answers come, and
libpcap hands packets on in blocks that may be a second old."""


@dataclass(frozen=True, slots=True)
class SniffOptions:
    """How a capture is written: whole packets in microsecond pcap unless it says otherwise."""

    snap_length: int = 0
    """Bytes kept of each packet; 0 keeps them whole."""
    nanoseconds: bool = False
    pcapng: bool = False
    interface: str = "lo"
    until_quiet: bool = True
    """Wait at the end until no more packets come; brokers among themselves are never quiet."""


class Sniffer:
    """Writes every TCP packet from or to one of the ports to a file; a context manager.

    Raises ``SetupError`` if the program is missing, does not start (needs CAP_NET_RAW) or lost packets.
    """

    def __init__(self, file: Path, ports: list[int], options: SniffOptions, within: Sequence[str] = ()) -> None:
        self.file = file
        self._within = within
        self._log = file.with_suffix(file.suffix + ".sniffer")
        self._filter = "tcp and (" + " or ".join(f"port {port}" for port in ports) + ")"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._within, *self._command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._started():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._stop()
                raise SetupError(f"cannot record packets: {self._said()}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._options.until_quiet:
            self._wait_until_quiet()
        else:
            time.sleep(QUIET_S)
        self._stop()
        said = self._said()
        self._log.unlink()
        if self._options.pcapng:
            blank_machine(self.file)
        lost = re.search(r"([1-9]\d*) packets? dropped|dropped on interface[^:]*: \d+/([1-9]\d*)", said)
        if error is None and lost:
            raise SetupError(f"packets were lost while recording: {said}")

    def _command(self) -> list[str]:
        options = self._options
        if options.pcapng:
            if options.nanoseconds is False or options.snap_length:
                raise ValueError("pcapng captures are written by dumpcap: nanoseconds, whole packets")
            return [_program("dumpcap"), "-q", "-i", options.interface, "-f", self._filter, "-w", str(self.file)]
        precision = "nano" if options.nanoseconds else "micro"
        command = [
            _program("tcpdump"),
            "-i",
            options.interface,
            "-n",
            "-U",
            "-B",
            "16384",
            "-s",
            str(options.snap_length),
        ]
        # -Z: stay the user that started it, or the file would belong to another.
        command += ["-Z", "root", f"--time-stamp-precision={precision}", "-w", str(self.file)]
        return [*command, self._filter]

    def _started(self) -> bool:
        return self.file.exists() and ("listening on" in self._said() or "File: " in self._said())

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    def _wait_until_quiet(self) -> None:
        size = -1
        while size != (size := self.file.stat().st_size):
            time.sleep(QUIET_S)

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(START_TIMEOUT_S)


def blank_machine(file: Path) -> None:
    """Overwrite what dumpcap records about the machine (processor, kernel) in a pcapng with dots of the same number.

    The options shb_hardware (2) and shb_os (3) of the section header, if_os (12) of interfaces; little-endian files.
    """
    data = bytearray(file.read_bytes())
    position = 0
    while position + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, position)
        fixed, told = {0x0A0D0D0A: (24, (2, 3)), 1: (16, (12,))}.get(kind, (length, ()))
        option = position + fixed
        while option + 4 <= position + length - 4:
            code, size = struct.unpack_from("<HH", data, option)
            if code in told:
                data[option + 4 : option + 4 + size] = b"." * size
            option += 4 + (size + 3) // 4 * 4
        position += length
    file.write_bytes(data)


def put_in_secrets(file: Path, key_log: Path) -> None:
    """Make a capture a pcapng that holds a key log, in front of its packets. Raises ``SetupError`` without one."""
    if not key_log.is_file():
        raise SetupError("nobody logged the secrets of TLS")
    whole = file.with_name(f"{file.name}.with-secrets")
    command = [_program("editcap"), "--inject-secrets", f"tls,{key_log}", str(file), str(whole)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"editcap: {done.stderr[-800:]}")
    whole.replace(file)
    blank_machine(file)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SetupError(f"{name} is needed to record packets")
    return found
