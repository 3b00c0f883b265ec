"""What Kafka's own classes (`kafka-classes/KafkaClasses.java`) read from the frames of the captures: made with Java,
kept compressed, read without."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from captures.record.distribution import COVERED_VERSION, DEFAULT_VERSION, OLD_VERSION, class_path, java
from tests.evidence.wire import Frame, frames

Evidence = dict[str, Any]

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "kafka-classes" / "KafkaClasses.java"
RELEASES = tuple(dict.fromkeys((COVERED_VERSION, OLD_VERSION, DEFAULT_VERSION)))
"""In the order in which they are asked; each message is read by the first that knows its version. A broker may be newer
than what the definitions cover."""
TIMEOUT_S = 300


def evidence_file(capture: Path) -> Path:
    return FOLDER / "kafka-classes" / f"{capture.name}.kafka.jsonl.gz"


def digest(capture: Path) -> str:
    return hashlib.sha256(capture.read_bytes()).hexdigest()


def _ask(release: str, asked: Sequence[Frame]) -> list[Evidence]:
    """What the classes of a release make of the frames. Raises CalledProcessError where the program fails."""
    lines = "".join(f"{frame.kind} {frame.api_key} {frame.api_version} {frame.data.hex()}\n" for frame in asked)
    done = subprocess.run(
        [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path(release), str(PROGRAM)],
        input=lines,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=TIMEOUT_S,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(messages: Sequence[Frame], releases: Iterable[str] = RELEASES) -> list[Evidence]:
    """One line of evidence per message, by the first of the releases that knows its version.

    Raises LookupError where none does; SetupError where Java or Maven are missing.
    """
    answers: dict[int, Evidence] = {}
    for release in releases:
        open_ones = [index for index in range(len(messages)) if index not in answers]
        if not open_ones:
            break
        reported = _ask(release, [messages[index] for index in open_ones])
        for index, answer in zip(open_ones, reported, strict=True):
            if not answer.get("unsupported"):
                answers[index] = {"kafka": release, **answer}
    for index, frame in enumerate(messages):
        if index not in answers:
            raise LookupError(f"no release knows API {frame.api_key} version {frame.api_version}")
    return [answers[index] for index in range(len(messages))]


def make(captures: Sequence[Path]) -> None:
    """Write the evidence of captures, all of it in one go, for starting Java takes longer than reading."""
    messages = [(capture, frame) for capture in captures for frame in frames(capture) if frame.kind != "sasl"]
    answers = ask([frame for _, frame in messages])
    for capture in captures:
        lines: list[Evidence] = [{"capture": capture.name, "sha256": digest(capture)}]
        lines += [answer for (of, _), answer in zip(messages, answers, strict=True) if of == capture]
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
        evidence_file(capture).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


@functools.cache
def evidence(capture: Path) -> tuple[tuple[Frame, Evidence], ...]:
    """The frames of a capture that are messages, each with its evidence.

    Raises ValueError where the evidence was made from another recording.
    """
    head, *lines = map(json.loads, gzip.decompress(evidence_file(capture).read_bytes()).splitlines())
    if head != {"capture": capture.name, "sha256": digest(capture)}:
        raise ValueError(f"{capture.name} was recorded anew: python -m tests.evidence {capture.name}")
    return tuple(zip((frame for frame in frames(capture) if frame.kind != "sasl"), lines, strict=True))
