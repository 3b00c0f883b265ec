"""What is measured against tshark: the commands, complete and comparable, and the targets."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.timing import timed

Measure = Literal["text", "json", "headers", "records", "tables"]
Shown = Literal["lines", "ek", "fields"]
"""The fields that tshark prints."""

KAFKASNIFF: Final = (sys.executable, "-m", "kafkasniff")
DECODE: Final[dict[str, tuple[str, ...]]] = {"text": ("--color", "never"), "json": ("--format", "json")}
EXPORT: Final[dict[str, tuple[str, ...]]] = {
    "headers": ("--tables", "exchanges", "--no-bodies"),
    "records": ("--tables", "records"),
    "tables": (),
}
COLUMNS: Final = (
    *("frame.time_epoch", "ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport"),
    *("kafka.len", "kafka.api_key", "kafka.api_version", "kafka.correlation_id", "kafka.client_id"),
)
"""The columns of the table `exchanges` that come from packets and message headers."""

BESIDE: Final[dict[Shown, tuple[Measure, ...]]] = {
    "lines": ("text",),
    "fields": ("headers",),
    "ek": ("json", "records"),
}
"""Our commands that are measured in turn with the same command of tshark."""

TITLES: Final[dict[Measure, str]] = {
    "text": "One line per message with its body fields: `decode` and `tshark -Y kafka`",
    "json": "Every body and record as JSON lines: `decode --format json` and `tshark -T ek`",
    "headers": "Headers as columns: `export --tables exchanges --no-bodies` and `tshark -T fields`",
    "records": "Records as Parquet: `export --tables records` and `tshark -T ek`",
}
TARGETS: Final[dict[Measure, dict[str, float]]] = {
    "text": {"A": 0.35, "B": 0.35, "B-ipv6": 0.35, "Bx": 0.35, "C": 0.20, "C-deep": 0.20, "E": 0.20, "mixed": 0.20},
    "json": {"A": 0.13, "B": 0.12, "Bx": 0.12, "C": 0.08},
    "headers": {"A": 0.20, "B": 0.20, "Bx": 0.20, "C": 0.06},
    "records": {"A": 0.15, "B": 0.15, "Bx": 0.25, "C": 0.12},
}
"""By measure and form: CPU time, ours divided by tshark's, in one process each."""

RATE_TARGETS: Final = {"A": 60.0, "B": 60.0, "C": 40.0}
"""MB of capture for each second of CPU, for `export` of all tables."""

PEAK_TARGET: Final = 250e6
FLAT_TARGET: Final = 0.10
PCAPNG_TARGET: Final = 1.3
JOBS_TARGET: Final = 0.58
START_TARGETS: Final = {"--version": 0.15, "--help": 0.15, "first line": 0.30}
"""Seconds of CPU."""

LEAST_TSHARK_S: Final = 5.0
"""Least CPU time of tshark's rows; below it, much of the comparison is startup."""


class Requests(NamedTuple):
    """How many requests each of them sees in a capture."""

    ours: int
    tshark: int
    malformed: int
    """Packets of Kafka's that tshark cannot decode."""


def ours(capture: Path, measure: str, folder: Path | None = None, *, jobs: int = 1) -> list[str]:
    """`folder`: for the tables."""
    if measure in DECODE:
        options = [*DECODE[measure], "--quiet", "--jobs", str(jobs)]
        return [*KAFKASNIFF, "decode", *options, str(capture)]
    assert folder is not None
    options = ["--output", str(folder / "export"), *EXPORT[measure], "--quiet", "--jobs", str(jobs)]
    return [*KAFKASNIFF, "export", *options, str(capture)]


def theirs(capture: Path, shown: Shown, ports: Sequence[int], columns: Sequence[str] = COLUMNS) -> list[str]:
    """tshark needs the ports of Kafka."""
    command = ["tshark", "-n", "-r", str(capture)]
    for port in ports:
        command += ["-d", f"tcp.port=={port},kafka"]
    command += ["-Y", "kafka"]
    if shown == "fields":
        return [*command, "-T", "fields", *(word for column in columns for word in ("-e", column))]
    return [*command, "-T", "ek"] if shown == "ek" else command


def requests_of(capture: Path, ports: Sequence[int], folder: Path) -> Requests:
    """Counted from columns, which are the same in all forms of output; `folder` is emptied before and removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        timed(ours(capture, "headers", folder), folder / "output")
        status = pq.read_table(folder / "export" / "exchanges", columns=["status"])["status"]
        mine = pc.sum(pc.not_equal(status, "orphan")).as_py() or 0
        columns = ("kafka.api_version", "_ws.malformed")
        timed(theirs(capture, "fields", ports, columns), folder / "output")
        other = malformed = 0
        with (folder / "output").open() as lines:
            for line in lines:
                # Only requests have a version on the wire.
                versions, _, wrong = line.rstrip("\n").partition("\t")
                other += sum(map(bool, versions.split(",")))
                malformed += bool(wrong)
        return Requests(mine, other, malformed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
