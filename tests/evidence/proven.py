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

_BEGIN = "# begin of the captures' part, written by `python -m tests.evidence` (tests/evidence/README.md)\n"
_END = "# end of the captures' part\n"
_HEAD = """\
# Pairs of API and version that were decoded from bytes that this project did not make, request and response, to values
# that it did not make: NAME VERSION EVIDENCE.

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


def proven_lines(captures: Iterable[Path]) -> list[str]:
    """Lines as `dissectors/proven.txt` has them, in order of keys and versions."""
    return [
        f"{name} {version} {', '.join(names)}, as classes of Kafka {release} read it"
        for (_, name, version, release), names in sorted(proven(captures).items())
    ]


def part(text: str) -> list[str] | None:
    """The captures' lines in the content of `dissectors/proven.txt`; None where it has no such part."""
    if _BEGIN not in text:
        return None
    return text.split(_BEGIN)[1].split(_END, maxsplit=1)[0].splitlines()


def merged(text: str, lines: Iterable[str]) -> str:
    """The file's content `text` with `lines` for the captures' part, at the end if there was none; the rest stays."""
    new = _BEGIN + "".join(line + "\n" for line in lines) + _END
    if _BEGIN not in text:
        return (text or _HEAD) + new
    before, _, rest = text.partition(_BEGIN)
    return before + new + rest.partition(_END)[2]
