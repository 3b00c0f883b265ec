"""What kafkasniff concludes from the captures in ``captures/faults``: one reviewed text file per capture; their kinds.

A file holds the exit code and output of ``check``, then the problems of ``decode`` by kind. ``python -m
tests.analysis.detectors.faults [NAME…]`` regenerates them. Compare a file with what the recording did before you commit
it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.cli.console import kafkasniff

ROOT = Path(__file__).resolve().parents[4]
CAPTURES = ROOT / "captures" / "faults"
FOLDER = Path(__file__).parent
MESSAGES = ("request", "response", "sasl")
LAYERS: Final = (
    *("name", "TCP", "TLS", "SASL", "ACL", "quota", "metadata", "broker", "group", "transaction", "share-group", "log"),
    *("controller", "client", "capture"),
)
MANNERS: Final = ("absent", "slow", "wrong", "flapping", "expired")
KINDS: Final = Path(__file__).parents[1] / "kinds.txt"


def captures() -> list[Path]:
    """Captures of faults and of their look-alikes, sorted by name."""
    return sorted(path for path in CAPTURES.iterdir() if path.suffix in (".pcap", ".pcapng"))


def answer_file(capture: Path) -> Path:
    return FOLDER / f"{capture.name}.txt"


def answers(capture: Path) -> str:
    """Output of ``check`` and ``decode`` for a capture. The current folder must be the checkout."""
    name = capture.relative_to(ROOT).as_posix()
    options = ("--keylog", f"{name}.keys") if Path(f"{name}.keys").exists() else ()
    checked = kafkasniff("check", "--color", "never", *options, name)
    decoded = kafkasniff("decode", "--quiet", "--format", "json", *options, name)
    if 70 in (checked.code, decoded.code):
        raise RuntimeError(f"{name}: {checked.err}{decoded.err}")
    lines = [json.loads(line) for line in decoded.out.splitlines()]
    problems = Counter(line["kind"] for line in lines if line["type"] == "problem")
    parts = [f"check: exit code {checked.code}", checked.out.decode().rstrip(), checked.err.rstrip(), ""]
    parts.append(f"decode: exit code {decoded.code}, {sum(line['type'] in MESSAGES for line in lines)} messages")
    parts += [f"problem {kind}: {count}" for kind, count in sorted(problems.items())]
    return "\n".join(parts) + "\n"


class Kind(NamedTuple):
    """A capture of trouble, or what was seen with a real cluster without one."""

    layer: str
    manner: str
    capture: str | None
    """Its name without the suffix."""
    shows: str = ""
    first: str = ""
    code: str = ""

    @property
    def name(self) -> str:
        """`TCP, slow`."""
        return f"{self.layer.replace('-', ' ')}, {self.manner}"


def kinds() -> Iterator[Kind]:
    """In the order of the file."""
    for line in KINDS.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        what, _, named = line.partition(": ")
        if what.startswith("lab "):
            _, layer, manner = what.split(" ")
            shows, first, code = named.split(" | ")
            yield Kind(layer, manner, None, shows, first, code)
        else:
            layer, manner = what.split(" ")
            yield from (Kind(layer, manner, name) for name in named.split(" "))
