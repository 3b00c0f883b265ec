"""The page about API coverage, from the definitions and dissectors/proven.txt (`tests.reference`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.apis.releases import (
    Proof,
    Proven,
    count_by_release,
    is_stable,
    proven,
    releases,
    spoken,
    version_ranges,
)
from kafkasniff.kafka.schema.codes import data_folder
from kafkasniff.kafka.schema.definition import DataDefinition
from kafkasniff.kafka.schema.schema import data_definitions
from tests.vectors.reader import unproduced

_INTRODUCTION = """\
# Coverage

Which API versions kafkasniff decodes, and how that is verified: from the definitions in
[dissectors/](../../dissectors/README.md) and from test results. `kafkasniff api --coverage` prints the counts.

- **V** (vectors): messages written by Apache Kafka's own classes, covering every field and every null of the version,
  decode to the output of Kafka's own JSON converters ([tests/vectors](../../tests/vectors/README.md)).
- **C** (captures): messages of real clients and brokers in [captures/](../../captures/README.md) decode to what Kafka's
  classes read from the same bytes ([tests/evidence](../../tests/evidence/README.md)).

A version of an API counts if this holds for both request and response. `dissectors/proven.txt` names the captures that
prove each version.
"""


def page() -> str:
    found = proven()
    return "".join([_INTRODUCTION, *_totals(found), *_apis(found), *_structures(found), *_batches(found)])


def _table(*columns: str) -> str:
    return f"\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def _totals(found: Proven) -> Iterator[str]:
    yield "\n## API versions\n" + _table("first released in", "defined", "proven", "V", "C")
    for since, *numbers in count_by_release(found.pairs):
        yield _row("no release" if since == "none" else since, *numbers)


def _exceptions(versions: Iterable[int], proofs: Mapping[int, Proof], usual: str) -> str:
    """`V 0-2, 5, none 6`: the versions whose proof is not the usual one."""
    by_code: dict[str, list[int]] = defaultdict(list)
    for version in versions:
        by_code[_code(proofs.get(version, Proof()))].append(version)
    return ", ".join(f"{code} {version_ranges(these)}" for code, these in by_code.items() if code != usual)


def _code(proof: Proof) -> str:
    return f"{'V' if proof.vectors else ''}{'C' if proof.captures else ''}" or "none"


def _apis(found: Proven) -> Iterator[str]:
    newest = releases()[-1]
    yield "\n## APIs\n\n`kafkasniff api NAME` shows the listeners of an API, and the first release of each version. "
    yield "Versions marked *opt-in* are disabled by default in every release. An empty cell means that "
    yield f"{newest} accepts all versions, or that V and C prove all of them.\n"
    yield _table("key", "API", "versions", f"{newest} accepts", "proven by")
    for key in api_keys():
        one = api(key)
        proofs = {version: found.pairs[key, version] for version in one.versions if (key, version) in found.pairs}
        versions = version_ranges(one.versions)
        accepted = spoken(key).get(newest, "none")
        if str(accepted) == versions:
            accepted = ""
        if unstable := [version for version in one.versions if not is_stable(key, version)]:
            versions += f" ({version_ranges(unstable)} opt-in)"
        yield _row(key, one.name, versions, accepted, _exceptions(one.versions, proofs, "VC"))
    yield from _reasons("pair")


def _reasons(kind: str) -> Iterator[str]:
    """Why there is no proof, and what there is instead."""
    entries = [entry for entry in unproduced() if entry.kind == kind]
    for otherwise, alike in groupby(entries, key=lambda entry: entry.otherwise):
        yield "\nNot proven this way, with the reason:\n\n"
        for entry in alike:
            yield f"- {entry.name} {version_ranges(entry.versions)}: {entry.reason}\n"
        yield f"\n{otherwise}\n"


def _structures(found: Proven) -> Iterator[str]:
    by_file: dict[str, list[DataDefinition]] = defaultdict(list)
    for definition in data_definitions().values():
        by_file[definition.file].append(definition)
    yield "\n## Headers, records and structures in bytes fields\n\n"
    yield "Releases are those whose schema files define the structure. Versions are proven by V unless marked *none*. "
    yield "`kafkasniff api NAME` shows a structure with its id.\n"
    for file, definitions in by_file.items():
        yield f"\n### {_title(file)}\n" + _table("versions", "releases", "structures")
        alike: dict[tuple[str, str], list[str]] = defaultdict(list)
        for one in definitions:
            alike[_versions(one, found)].append(one.message.name)
        for (shown, since), names in alike.items():
            yield _row(shown, since, ", ".join(names))
    yield from _reasons("data")


def _versions(one: DataDefinition, found: Proven) -> tuple[str, str]:
    """Versions, with those that are not proven by vectors, and releases."""
    name, versions = one.message.name, one.message.versions
    proofs = {version: proof for (of, version), proof in found.data.items() if of == name}
    unproven = _exceptions(range(versions.low, versions.high + 1), proofs, "V")
    shown = f"{versions} ({unproven})" if unproven else str(versions)
    return shown, _since(*one.releases)


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
