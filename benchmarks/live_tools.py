"""The programs that are compared: their command lines, and how to read their output."""

from __future__ import annotations

import dataclasses
import os
import re
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from benchmarks.live_network import program

LOST_IN_ALL: Final = re.compile(r"([\d,]+) of ([\d,]+) packets were lost")
LOST_SINCE: Final = re.compile(r"([\d,]+) of [\d,]+ packets since")
TSHARK_LOST: Final = re.compile(r"(\d+) packets? dropped")

# A line's time, or blanks; whatever connection it is about; then an API and its version, or a problem's kind.
PROBLEM: Final = re.compile(rb"(?:\d\d:\d\d:\d\d\.\d{6}| {15})  (?:\S+ \S+ \S+ *  )?([a-z][a-z0-9-]*): (.*)")
REQUEST: Final = re.compile(rb"\d\d:\d\d:\d\d\.\d{6}  \S+ \xe2\x86\x92 \S+ +(?![a-z][a-z0-9-]*: )\S")

PCAPNG_STATISTICS: Final = 5
OPTION_RECEIVED: Final = 4
OPTION_DROPPED: Final = 5
PCAPNG_PACKET: Final = 6
READ_BYTES: Final = 1 << 20
SPOOL: Final = "spool.pcapng"


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a load can be seen."""

    interface: str
    ports: tuple[int, ...]


@dataclasses.dataclass
class Reported:
    """What a program reports about a load, and what it shows. None: not reported."""

    requests: int | None = None
    """Lines of requests; of tables: rows."""
    received: int | None = None
    """Packets that the kernel gave to its socket, the lost ones with them."""
    lost: int | None = None
    """Packets that the kernel could not give to it."""
    kept: int | None = None
    """Packets in the file that it wrote."""
    problems: dict[str, int] = dataclasses.field(default_factory=dict)
    """How many of each kind: those of streams and those within messages."""
    said: str = ""
    """The last line on stderr."""
    spool: int = 0
    """Bytes of a file of packets that it kept for itself meanwhile."""


class Tool(ABC):
    """A program, called in one way."""

    prints = True
    """Messages come on standard output."""
    spools: str | None = None
    """Name, with wildcards, of the one file that packets wait in; removed when it ends."""

    def __init__(self, name: str, form: str, extra: Sequence[str] = ()) -> None:
        self.name = name
        self.form = form
        """Its output: `text` or `json`, or something of its own."""
        self.extra = list(extra)

    @abstractmethod
    def command(self, target: Target, folder: Path, limit_s: float) -> list[str]:
        """The command; its files go to `folder`, and it ends by itself after `limit_s`."""

    @abstractmethod
    def reported(self, output: Path, errors: str, folder: Path) -> Reported:
        """The results in its output, in stderr, and in the files in `folder`."""

    def keep(self, folder: Path) -> None:
        """Called before it is stopped: keep the packets that it would remove."""
        if self.spools is not None:
            for file in folder.glob(self.spools):
                (folder / SPOOL).hardlink_to(file)


class Kafkasniff(Tool):
    """`kafkasniff live`, as text or JSON lines."""

    def command(self, target: Target, folder: Path, limit_s: float) -> list[str]:
        # The folder is root's, and the Python may be.
        stays = ["--keep-root"] if os.geteuid() == 0 else []
        command = [sys.executable, "-m", "kafkasniff", "live", *stays, "-i", target.interface, *self.options(folder)]
        return [*command, f"--duration={limit_s:.0f}", *self.extra]

    def options(self, folder: Path) -> list[str]:
        return ["--format", "json"] if self.form == "json" else ["--color", "never"]

    def reported(self, output: Path, errors: str, folder: Path) -> Reported:
        reported = Reported()
        with output.open("rb") as lines:
            count_lines(self.form, lines, reported)
        return self.said(reported, errors)

    def said(self, reported: Reported, errors: str) -> Reported:
        """Add the messages on stderr to the counts of its lines."""
        reported.said = _last(errors)
        reported.lost = reported.lost or 0
        captured = re.search(r"([\d,]+) packets?, [\d,]+ connection", reported.said)
        if captured:
            reported.received = _number(captured[1]) + reported.lost
        return reported


class KafkasniffWrite(Kafkasniff):
    """`kafkasniff live -q --write FILE`: packets to a file, no messages."""

    prints = False

    def options(self, folder: Path) -> list[str]:
        return ["--quiet", "--write", str(folder / "kept.pcapng")]

    def reported(self, output: Path, errors: str, folder: Path) -> Reported:
        file = read_pcapng(folder / "kept.pcapng")
        return Reported(received=file.received, lost=file.dropped, kept=file.packets, said=_last(errors))


class KafkasniffExport(Kafkasniff):
    """`kafkasniff live -q --export DIR`: tables, no messages."""

    prints = False

    def options(self, folder: Path) -> list[str]:
        return ["--quiet", "--export", str(folder / "tables")]

    def reported(self, output: Path, errors: str, folder: Path) -> Reported:
        # Here: it takes half a second, and the other programs need nothing of it.
        import pyarrow.dataset  # noqa: PLC0415

        reported = Reported(said=_last(errors), lost=0)
        tables = {name: folder / "tables" / name for name in ("exchanges", "problems")}
        if tables["exchanges"].is_dir():
            statuses = pyarrow.dataset.dataset(tables["exchanges"], format="parquet").to_table(columns=["status"])
            reported.requests = sum(status != "orphan" for status in statuses["status"].to_pylist())
        if tables["problems"].is_dir():
            found = pyarrow.dataset.dataset(tables["problems"], format="parquet").to_table(columns=["kind", "detail"])
            for row in found.to_pylist():
                _count_problem(reported, row["kind"], row["detail"])
        return reported


class Tshark(Tool):
    """`tshark -l -Y kafka`, as text or `-T ek`; the packets that it has yet to look at are in a file of its own."""

    spools = "wireshark_*.pcapng"

    def command(self, target: Target, folder: Path, limit_s: float) -> list[str]:
        command = [program("tshark"), "-n", "-i", target.interface, "-l", "-t", "e", "-a", f"duration:{limit_s:.0f}"]
        command += self.extra
        for port in target.ports:
            command += ["-d", f"tcp.port=={port},kafka"]
        return [*command, "-Y", "kafka", *(["-T", "ek"] if self.form == "json" else [])]

    def reported(self, output: Path, errors: str, folder: Path) -> Reported:
        # Only requests have a version on the wire; each message of a packet is named in its line.
        mark = b'"kafka_kafka_api_version"' if self.form == "json" else b" Request"
        with output.open("rb") as lines:
            reported = Reported(requests=sum(line.count(mark) for line in lines), said=_last(errors))
        if dropped := TSHARK_LOST.findall(errors):
            reported.lost = sum(map(int, dropped))
        spool = folder / SPOOL
        if spool.exists():
            file = read_pcapng(spool)
            reported.received, reported.spool = file.received, spool.stat().st_size
            reported.lost = file.dropped if reported.lost is None else reported.lost
        return reported


class PcapngFile(NamedTuple):
    """What a file says; None where it does not."""

    packets: int
    received: int | None
    dropped: int | None


def read_pcapng(path: Path) -> PcapngFile:
    """Count the packets of a little-endian pcapng, and read what its interfaces' statistics say; a cut one, too."""
    packets = 0
    received: int | None = None
    dropped: int | None = None
    with path.open("rb", READ_BYTES) as file:
        while len(head := file.read(8)) == 8:
            kind, length = struct.unpack("<II", head)
            if kind == PCAPNG_STATISTICS:
                options = dict(_options(file.read(length - 8)[12:-4]))
                if OPTION_RECEIVED in options:
                    received = (received or 0) + options[OPTION_RECEIVED]
                if OPTION_DROPPED in options:
                    dropped = (dropped or 0) + options[OPTION_DROPPED]
            else:
                packets += kind == PCAPNG_PACKET
                if length < 12:
                    break  # no block; blocks after it cannot be found
                file.seek(length - 8, 1)
    return PcapngFile(packets, received, dropped)


def _options(data: bytes) -> Iterator[tuple[int, int]]:
    """Those that are 64-bit numbers."""
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from("<HH", data, at)
        if length == 8 and at + 12 <= len(data):
            yield code, struct.unpack_from("<Q", data, at + 4)[0]
        at += 4 + (length + 3) // 4 * 4


def count_lines(form: str, lines: Iterable[bytes], reported: Reported) -> None:
    """Count the requests and problems of kafkasniff's lines, `text` or `json`, while they come."""
    (_count_json if form == "json" else _count_text)(lines, reported)


def _count_json(lines: Iterable[bytes], reported: Reported) -> None:
    reported.requests = 0
    for line in lines:
        if line.startswith(b'{"type":"request"'):
            reported.requests += 1
        if line.startswith(b'{"type":"problem"'):
            problem = orjson.loads(line)
            _count_problem(reported, problem["kind"], problem["detail"])
        # One that was ended by force leaves a line in part.
        elif b'"problems":[]' not in line and line.endswith(b"}\n"):
            for problem in orjson.loads(line).get("problems", ()):
                _count_problem(reported, problem["kind"], problem["detail"])


def _count_text(lines: Iterable[bytes], reported: Reported) -> None:
    reported.requests = 0
    for line in lines:
        if REQUEST.match(line):
            reported.requests += 1
        elif found := PROBLEM.match(line):
            kind, detail = found.groups()
            _count_problem(reported, kind.decode(), detail.decode(errors="replace"))


def _count_problem(reported: Reported, kind: str, detail: str) -> None:
    reported.problems[kind] = reported.problems.get(kind, 0) + 1
    if kind == "capture-loss":
        # The final sum includes all earlier reports.
        if in_all := LOST_IN_ALL.search(detail):
            reported.lost = _number(in_all[1])
        elif since := LOST_SINCE.search(detail):
            reported.lost = (reported.lost or 0) + _number(since[1])


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _last(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else ""


TOOLS: Final = ("text", "json", "write", "export", "tshark", "tshark-ek")


def make_tools(names: Sequence[str], options: Sequence[str]) -> list[Tool]:
    """The programs by these names of TOOLS; `options` are handed on to `kafkasniff live`."""
    made: dict[str, Tool] = {
        "text": Kafkasniff("text", "text", options),
        "json": Kafkasniff("json", "json", options),
        "write": KafkasniffWrite("write", "pcapng", options),
        "export": KafkasniffExport("export", "tables", options),
        "tshark": Tshark("tshark", "text"),
        "tshark-ek": Tshark("tshark-ek", "json"),
    }
    return [made[name] for name in names]
