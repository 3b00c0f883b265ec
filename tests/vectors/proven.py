"""Which (API, version) pairs the vectors prove: of request and response every vector is there and agrees."""

from __future__ import annotations

from collections import defaultdict

from kafkasniff.kafka.dissectors import api
from tests.vectors.matching import differences
from tests.vectors.reader import Vector, vectors


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
            lines.append(f"{found.name} {version} classes of Kafka {releases}")
    return lines
