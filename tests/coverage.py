"""``python -m tests.coverage``: write docs/coverage.md again, from the definitions and dissectors/proven.txt."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from kafkasniff.kafka.coverage import Proof, Proven, count_by_release, proven, version_ranges
from kafkasniff.kafka.data_files import data_folder
from kafkasniff.kafka.definition import DataDefinition
from kafkasniff.kafka.dissectors import Api, api, api_keys, data_definitions
from kafkasniff.kafka.releases import first_release, is_stable, releases, spoken
from tests.vectors.reader import unproduced

PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"

_INTRODUCTION = """\
# Coverage

Which API versions kafkasniff decodes, and how that is verified. `make golden` writes this page from the definitions in
[dissectors/](../dissectors/README.md) and from test results; `kafkasniff api --coverage` prints the same counts.

- **V** (vectors): messages written by Apache Kafka's own classes, covering every field and every null of the version,
  decode to the output of Kafka's own JSON converters ([tests/vectors](../tests/vectors/README.md)).
- **C** (captures): messages of real clients and brokers in [captures/](../captures/README.md) decode to what Kafka's
  classes read from the same bytes ([tests/evidence](../tests/evidence/README.md)).

A version of an API counts if this holds for both request and response. Nothing else counts: neither agreement between
two parts of kafkasniff, nor decoding without an error.
"""


def page() -> str:
    """The content of docs/coverage.md."""
    found = proven()
    parts = [_INTRODUCTION, *_totals(found), *_apis(found), *_structures(found), *_batches(found), *_captures(found)]
    return "".join(parts)


def _table(*columns: str) -> str:
    return f"\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def _totals(found: Proven) -> Iterator[str]:
    yield "\n## API versions\n" + _table("first released in", "defined", "proven", "V", "C")
    for since, *numbers in count_by_release(found.pairs):
        yield _row("no release" if since == "none" else since, *numbers)


def _proof(versions: Iterable[int], proofs: Mapping[int, Proof]) -> str:
    """`V 0-2, VC 3`: runs of versions, each with what proves it."""
    runs = groupby(versions, key=lambda version: _code(proofs.get(version, Proof())))
    return ", ".join(f"{code} {version_ranges(run)}" for code, run in runs)


def _code(proof: Proof) -> str:
    return f"{'V' if proof.vectors else ''}{'C' if proof.captures else ''}" or "none"


def _releases(found: Api) -> str:
    """`0 in 2.2, 1-2 in 2.4`: the first release of each version."""
    runs = groupby(found.versions, key=lambda version: _release(found.key, version))
    return ", ".join(f"{version_ranges(versions)} in {release}" for release, versions in runs)


def _release(key: int, version: int) -> str:
    release = first_release(key, version)
    return "no release" if release is None else release + ("" if is_stable(key, version) else " (opt-in)")


def _apis(found: Proven) -> Iterator[str]:
    newest = releases()[-1]
    yield "\n## APIs\n\n`(opt-in)` marks versions that no release enables by default. "
    yield "Listeners are those of any release.\n"
    yield _table("key", "API", "versions, first in", f"{newest} accepts", "listeners", "proof")
    for key in api_keys():
        one = api(key)
        assert one is not None
        proofs = {version: found.pairs[key, version] for version in one.versions if (key, version) in found.pairs}
        accepted = spoken(key).get(newest, "none")
        yield _row(key, one.name, _releases(one), accepted, " ".join(one.listeners), _proof(one.versions, proofs))
    yield from _reasons("pair")


def _reasons(kind: str) -> Iterator[str]:
    """Why there is no proof, and what there is instead."""
    entries = [entry for entry in unproduced() if entry.kind == kind]
    if entries:
        yield "\nNot proven this way, with the reason and the check that replaces it:\n\n"
    for entry in entries:
        yield f"- {entry.name} {version_ranges(entry.versions)}: {entry.reason} {entry.otherwise}\n"


def _structures(found: Proven) -> Iterator[str]:
    by_file: dict[str, list[DataDefinition]] = defaultdict(list)
    for definition in data_definitions().values():
        by_file[definition.file].append(definition)
    yield "\n## Headers, records and structures in bytes fields\n\n"
    yield "Releases are those whose schema files define the structure.\n"
    for file, definitions in by_file.items():
        yield f"\n### {_title(file)}\n" + _table("name", "kind", "id", "versions", "releases", "proof")
        for one in definitions:
            name, versions = one.message.name, one.message.versions
            proofs = {version: proof for (of, version), proof in found.data.items() if of == name}
            proof = _proof(range(versions.low, versions.high + 1), proofs)
            yield _row(name, one.kind, "" if one.id is None else one.id, versions, _since(*one.releases), proof)
    yield from _reasons("data")


def _since(first: str, last: str) -> str:
    """`2.8+`, `3.0-3.2` or `2.8`."""
    if not last:
        return f"{first}+" if first else ""
    return first if first == last else f"{first}-{last}"


def _title(file: str) -> str:
    """The first sentence of a definition file."""
    places = (data_folder() / f"{file}.txt", data_folder() / "records" / f"{file}.txt")
    text = next(path for path in places if path.is_file()).read_text(encoding="utf-8")
    return text.splitlines()[0].removeprefix("# ").split(". ")[0].rstrip(".")


def _batches(found: Proven) -> Iterator[str]:
    names = {0: "message set", 1: "message set", 2: "record batch"}
    yield "\n## Record batches\n" + _table("magic", "name", "proof")
    for magic, proof in sorted(found.batches.items()):
        yield _row(magic, names[magic], _code(proof))


def _captures(found: Proven) -> Iterator[str]:
    """What each capture proves: the other side of the C above."""
    by_capture: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (key, version), proof in sorted(found.pairs.items()):
        for capture in proof.captures:
            by_capture[capture][key].append(version)
    yield "\n## Evidence by capture\n" + _table("capture", "API versions", "list")
    for capture, versions in sorted(by_capture.items()):
        told = [
            f"{one.name} {version_ranges(versions[key])}" for key in sorted(versions) if (one := api(key)) is not None
        ]
        yield _row(capture, sum(map(len, versions.values())), ", ".join(told))


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
