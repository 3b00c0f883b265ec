"""`dissectors/proven.txt`: the pairs of API and version whose decoding the shipped captures prove.

A pair is proven where a capture has a whole request and its whole response, of a client and a broker that are not ours,
and both golden lines say what Kafka's own classes read from the same bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.evidence.compare import Line, line_differences
from tests.evidence.kafka_classes import Evidence
from tests.evidence.match import golden_lines, match
from tests.evidence.wire import Frame
from tests.golden import ROOT

PROVEN_FILE = ROOT / "dissectors" / "proven.txt"

_HEAD = """\
# Pairs of API and version that were decoded from bytes that this project did not make, request and response, to the
# values that Apache Kafka's own message classes read from them: NAME VERSION CAPTURES (Kafka RELEASE).
# Written by `python -m tests.evidence`; see tests/evidence/README.md.
"""


def _is_proof(line: Line, frame: Frame, told: Evidence) -> bool:
    """Whether a body of the version that the line names was read to its end, and right."""
    read = line["body"] is not None and not frame.cut and told["version"] == frame.api_version
    return read and not any(line_differences(line, frame, told))


def proven(captures: Iterable[Path]) -> dict[tuple[int, str, int, str], list[str]]:
    """(Key, name, version, Kafka's release) of each proven pair: the captures that prove it."""
    found: dict[tuple[int, str, int, str], list[str]] = defaultdict(list)
    for capture in captures:
        matches, _, _ = match(capture, golden_lines(capture))
        good = {id(frame) for line, frame, told in matches if _is_proof(line, frame, told)}
        for line, frame, told in matches:
            if line["type"] == "request" and id(frame) in good and id(frame.pair) in good:
                captures_of_pair = found[frame.api_key, told["api"], frame.api_version, told["kafka"]]
                if capture.name not in captures_of_pair:
                    captures_of_pair.append(capture.name)
    return found


def proven_text(captures: Iterable[Path]) -> str:
    """The content that `dissectors/proven.txt` has to have."""
    lines = [
        f"{name} {version} {', '.join(names)} (Kafka {release})\n"
        for (_, name, version, release), names in sorted(proven(captures).items())
    ]
    return _HEAD + "\n" + "".join(lines)
