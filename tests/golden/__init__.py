"""Golden files: what `kafkasniff decode --format json` prints for each shipped capture. See the README here."""

from __future__ import annotations

from pathlib import Path

from tests.cli.console import kafkasniff

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
SUFFIXES = (".pcap", ".pcapng", ".gz", ".zst", ".lz4")


def captures() -> list[Path]:
    """The shipped captures, sorted by name."""
    return sorted(path for path in (ROOT / "captures").iterdir() if path.suffix in SUFFIXES)


def golden_file(capture: Path) -> Path:
    """The golden file of a capture."""
    return FOLDER / f"{capture.name}.jsonl"


def arguments(capture: Path) -> list[str]:
    """The command line, to be run in the checkout: problem lines name the capture as it was given."""
    return ["decode", "--quiet", "--format", "json", capture.relative_to(ROOT).as_posix()]


def decode(capture: Path, *options: str) -> bytes:
    """What the command prints; the current folder has to be the checkout. Raises RuntimeError where it fails."""
    result = kafkasniff(*arguments(capture), *options)
    if result.code or result.err:
        raise RuntimeError(f"{capture.name}: exit code {result.code}: {result.err}")
    return result.out
