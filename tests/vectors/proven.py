"""Which (API, version) pairs the vectors prove: of request and response every vector is there and agrees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kafkasniff.kafka.dissectors import api
from tests.vectors.matching import differences
from tests.vectors.reader import FOLDER, Vector, vectors

PROVEN_FILE = FOLDER.parent.parent / "dissectors" / "proven.txt"

_BEGIN = "# begin of the classes' part, written by `python -m tests.vectors proven` (tests/vectors/README.md)\n"
_END = "# end of the classes' part\n"


def proven_lines() -> list[str]:
    """Lines as `dissectors/proven.txt` has them: `NAME VERSION EVIDENCE`, in order of keys and versions."""
    by_pair: dict[tuple[int, int], list[Vector]] = defaultdict(list)
    for vector in vectors():
        if vector.key is not None:
            by_pair[vector.key, vector.version].append(vector)
    lines = []
    for (key, version), members in sorted(by_pair.items()):
        found = api(key)
        both = {member.kind for member in members} == {"request", "response"}
        if found is not None and version in found.versions and both and not any(map(differences, members)):
            releases = " and ".join(sorted({member.release for member in members}))
            lines.append(f"{found.name} {version} written by classes of Kafka {releases}")
    return lines


def part(text: str) -> list[str] | None:
    """The vectors' lines in the content of `dissectors/proven.txt`; None where it has no such part."""
    if _BEGIN not in text:
        return None
    return text.split(_BEGIN)[1].split(_END, maxsplit=1)[0].splitlines()


def merged(text: str, lines: Iterable[str]) -> str:
    """The file's content `text` with `lines` for the vectors' part, at the end if there was none; the rest stays."""
    new = _BEGIN + "".join(line + "\n" for line in lines) + _END
    before, begin, rest = text.partition(_BEGIN)
    return before + new + (rest.partition(_END)[2] if begin else "")
