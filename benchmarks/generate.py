"""Makes the benchmark's captures in `benchmarks/data`: `python -m benchmarks.generate --help`, README.md.

Next to each capture is a `.json` file with its settings, its brokers' ports (for tshark) and its packets. Only
recording the forms A and mixed needs root; forms made from A do not, once it exists.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from benchmarks import deep_messages, deep_traffic, small_messages, trouble_messages
from benchmarks.disturbed_segments import disturbed
from benchmarks.mixed_recording import record as record_mixed
from benchmarks.pcap_files import count_packets, write_copies
from benchmarks.recorded_answers import without_refusals
from benchmarks.recording import RecordingError, client_python, record_with
from benchmarks.resegment import resegmented, write_packets
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.craft.write import write_pcap

DATA: Final = Path(__file__).parent / "data"
FORMAT: Final = 1
"""Raised when the same sizes give other bytes, so that old captures are replaced."""

FORMS: Final = {
    "A": "clients of librdkafka, all codecs, segments of up to 64 kB; recorded from loopback, which needs root",
    "B": "A in segments of 1,448 bytes",
    "Bx": "B with 1.5% of the segments reordered, twice or late",
    "C": "many connections of small messages",
    "C-deep": "many connections that pipeline small messages whose bodies differ, of clients of four releases",
    "E": "C in trouble: errors in most responses, topic ids, fetch sessions, odd messages, lost and late segments",
    "mixed": "clients of Java, librdkafka and franz-go with a broker of Kafka 4, groups and fetch sessions; recorded "
    "from loopback, which needs root, Java, Maven and Go",
    "start": "100 packets, for the time until the first line",
}

BY_NAME: Final = ("C-deep", "E", "mixed")
"""Forms that are made only if they are named."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Settings of captures; the same settings give the same bytes, except for recordings."""

    base_mb: int = 128
    """Recorded size of form A; recordings are repeated in copies, each later and with other clients."""
    large_copies: int = 8
    """Copies of the recording in A."""
    segment_copies: int = 3
    """In B."""
    disturbed_copies: int = 1
    """Copies in Bx, for which tshark takes ten times as long."""
    packets: int = 2_000_000
    """Packets of forms C and E."""
    connections: int = 2000
    """Connections of forms C, C-deep and E."""
    deep_exchanges: int = 200_000
    """Requests of form C-deep, each with its response."""
    mixed_mb: int = 40
    """Recorded size of form mixed."""
    mixed_copies: int = 7
    """Copies of the recording in mixed. They repeat all bodies."""
    seed: int = 1
    format: int = FORMAT


QUICK: Final = Sizes(
    base_mb=3,
    large_copies=2,
    segment_copies=1,
    packets=12_000,
    connections=100,
    deep_exchanges=2_000,
    mixed_mb=2,
    mixed_copies=2,
)


MADE_OF: Final = {
    "A": ("base_mb", "large_copies", "seed", "format"),
    "B": ("base_mb", "segment_copies", "seed", "format"),
    "Bx": ("base_mb", "disturbed_copies", "seed", "format"),
    "C": ("packets", "connections", "seed", "format"),
    "C-deep": ("deep_exchanges", "connections", "seed", "format"),
    "E": ("packets", "connections", "seed", "format"),
    "mixed": ("mixed_mb", "mixed_copies", "format"),
    "start": ("format",),
}
"""Which sizes a form depends on."""

COPIES: Final = {"A": "large_copies", "B": "segment_copies", "Bx": "disturbed_copies"}


class Capture(NamedTuple):
    """An existing capture."""

    form: str
    path: Path
    ports: list[int]
    packets: int


def path_of(data: Path, form: str) -> Path:
    return data / f"{form}.pcap"


def captures(data: Path) -> dict[str, Capture]:
    """All existing complete captures, by form."""
    found = {}
    for form in FORMS:
        facts = _facts(path_of(data, form))
        if facts is not None:
            found[form] = Capture(form, path_of(data, form), facts["ports"], facts["packets"])
    return found


def made_with(data: Path) -> dict[str, Any]:
    """What the captures in `data` were made with, by form."""
    return {form: (_facts(path_of(data, form)) or {}).get("made_with") for form in captures(data)}


def _facts(path: Path) -> dict[str, Any] | None:
    """The facts about a capture; None if it does not exist, or if making it was interrupted."""
    facts = path.with_suffix(".json")
    if not path.exists() or not facts.exists():
        return None
    found: dict[str, Any] = json.loads(facts.read_text())
    # Older files have fewer facts.
    return found if "made_with" in found else None


class Maker:
    """Makes captures in a folder, each from what it needs, which is made first and kept."""

    def __init__(self, data: Path, sizes: Sizes) -> None:
        self.data = data
        self.sizes = sizes
        self.python: str | None = None

    def is_there(self, form: str) -> bool:
        facts = _facts(path_of(self.data, form))
        return facts is not None and facts["made_with"] == self.made_with(form)

    def made_with(self, form: str) -> dict[str, int]:
        """What a capture depends on."""
        return {name: getattr(self.sizes, name) for name in MADE_OF[form]}

    def make(self, form: str) -> None:
        """Raises RecordingError."""
        sizes = self.sizes
        if form == "start":
            self._write(form, [9092], _start)
        elif form == "mixed":
            self._copy_mixed()
        elif form == "C-deep":
            self._write(form, [deep_messages.BROKER_PORT], self._deep)
        elif form in {"C", "E"}:
            write = small_messages.write if form == "C" else trouble_messages.write_trouble
            # One round more than necessary: at least this many packets.
            wanted = sizes.packets + 3 * sizes.connections
            self._write(
                form, [small_messages.BROKER_PORT], lambda path: write(path, sizes.connections, wanted, sizes.seed)
            )
        else:
            copies = getattr(sizes, COPIES[form])
            base = self._base(form)
            ports = self._ports()
            self._write(form, ports, lambda path: write_copies(base.read_bytes(), path, copies, ports))

    def _write(self, form: str, ports: list[int], write: Callable[[Path], object]) -> None:
        path = path_of(self.data, form)
        facts = path.with_suffix(".json")
        facts.unlink(missing_ok=True)
        aside = path.with_suffix(".part")
        write(aside)
        aside.rename(path)
        known = {
            "made_with": self.made_with(form),
            "ports": ports,
            "packets": count_packets(path),
        }
        facts.write_text(json.dumps(known, indent=1) + "\n")
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {known['packets']:,} packets", flush=True)

    def _deep(self, path: Path) -> None:
        deep_traffic.write(path, self.sizes.connections, self.sizes.deep_exchanges, self.sizes.seed)

    def _copy_mixed(self) -> None:
        base = self.data / "bases" / f"mixed-{self.sizes.mixed_mb}-{self.sizes.format}.pcap"
        facts = base.with_suffix(".json")
        if not facts.exists():
            base.parent.mkdir(parents=True, exist_ok=True)
            recorded = record_mixed(base, self.sizes.mixed_mb)
            facts.write_text(json.dumps({"ports": recorded}) + "\n")
        ports: list[int] = json.loads(facts.read_text())["ports"]
        self._write("mixed", ports, lambda path: write_copies(base.read_bytes(), path, self.sizes.mixed_copies, ports))

    def _recording(self) -> Path:
        sizes = self.sizes
        name = f"recorded-capped-{sizes.base_mb}-{sizes.seed}-{sizes.format}.pcap"
        path = self.data / "bases" / name
        facts = path.with_suffix(".json")
        if not facts.exists():
            self.python = self.python or client_python()
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in path.parent.glob(f"*-of-{path.name}"):
                old.unlink()
            ports = record_with(self.python, path, sizes.base_mb, sizes.seed)
            write_packets(path, without_refusals(read_packets(path)))
            facts.write_text(json.dumps({"ports": ports}) + "\n")
        return path

    def _ports(self) -> list[int]:
        found: list[int] = json.loads(self._recording().with_suffix(".json").read_text())["ports"]
        return found

    def _base(self, form: str) -> Path:
        """The traffic that is repeated in copies."""
        recording = self._recording()
        if form == "A":
            return recording
        base = self.data / "bases" / f"{form}-of-{recording.name}"
        if not base.exists():
            packets: Sequence[Packet] = list(resegmented(recording))
            if form == "Bx":
                packets, counts = disturbed(packets, Random(self.sizes.seed))
                print(f"{base.name}: {', '.join(f'{count:,} {name}' for name, count in sorted(counts.items()))}")
            aside = base.with_suffix(".part")
            write_packets(aside, packets)
            aside.rename(base)
        return base


def _start(path: Path) -> None:
    write_pcap(path, mixed()[:100], nanoseconds=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    described = "; ".join(f"{form}: {what}" for form, what in FORMS.items())
    usual = f"(default: all but {', '.join(BY_NAME)})"
    parser.add_argument("forms", nargs="*", metavar="FORM", help=f"{described.replace('%', '%%')} {usual}")
    for field in dataclasses.fields(Sizes):
        if field.name != "format":
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, metavar="N", help=f"[{field.default}]")
    parser.add_argument("--quick", action="store_true", help="small captures for a trial, in a folder of their own")
    parser.add_argument("--missing", action="store_true", help="only missing captures")
    parser.add_argument("--data", type=Path, default=DATA, help="folder for the captures [benchmarks/data]")
    options = parser.parse_args(arguments)
    if unknown := set(options.forms) - set(FORMS):
        parser.error(f"no such form: {', '.join(sorted(unknown))}")
    given = {
        field.name: value for field in dataclasses.fields(Sizes) if (value := vars(options).get(field.name)) is not None
    }
    if any(value < 1 for value in given.values()):
        parser.error("sizes are positive")
    data: Path = options.data / "quick" if options.quick else options.data
    data.mkdir(parents=True, exist_ok=True)
    maker = Maker(data, dataclasses.replace(QUICK if options.quick else Sizes(), **given))
    failed: dict[str, list[str]] = {}
    for form in options.forms or [form for form in FORMS if form not in BY_NAME]:
        if options.missing and maker.is_there(form):
            continue
        try:
            maker.make(form)
        except RecordingError as error:
            failed.setdefault(str(error), []).append(form)
    for reason, forms in failed.items():
        print(f"not made: {', '.join(forms)}: {reason}", file=sys.stderr)
    # Measure what is possible without them; the page lists what is missing.
    return 0 if captures(data) else 1


if __name__ == "__main__":
    sys.exit(main())
