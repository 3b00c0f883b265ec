"""Every vector written by Kafka's own classes decodes to Kafka's own JSON (tests/vectors/README.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from kafkasniff.kafka.apis.dissectors import api, api_by_name, api_keys
from kafkasniff.kafka.apis.releases import defined_data, defined_pairs, find_release, proven, releases, spoken_by
from kafkasniff.kafka.schema.codes import error_by_code, error_codes
from kafkasniff.kafka.schema.definition import Field, Struct
from kafkasniff.kafka.schema.schema import data_schema
from tests.proven_file import PROVEN_FILE
from tests.renamed import as_released
from tests.vectors.matching import compare, our_name
from tests.vectors.proven import PART, disagreements, proven_lines
from tests.vectors.reader import Vector, unproduced, vectors

VARIANTS = ["default", "null", "null-leaves", "untagged", "full", "random-1", "random-2"]
INNER = "null-inner"
"""A variant of those layouts alone that have something nullable in something nullable."""
MESSAGES = ("request", "response", "data")

Layout = tuple[str, str, int]
"""Kind, name and version."""


def layout(vector: Vector) -> Layout:
    return vector.kind, vector.name, vector.version


def root(vector: Vector) -> Struct:
    if vector.kind == "data":
        schema = data_schema(vector.name, vector.version)
    else:
        found = api(vector.key)
        schema = found.request(vector.version) if vector.kind == "request" else found.response(vector.version)
    return schema.root


def without(what: str) -> set[tuple[str, int]]:
    return {(entry.name, version) for entry in unproduced() if entry.kind == what for version in entry.versions}


def test_decoded_vectors_match_kafka() -> None:
    found = [(*layout(vector), vector.variant, reported) for vector, reported in disagreements().items()]
    assert found == []


def test_error_codes() -> None:
    (errors,) = [vector.body for vector in vectors() if vector.kind == "errors"]
    ours = [error for code in error_codes() if (error := error_by_code(code)) is not None]
    assert {str(error.code): {"name": error.name, "retriable": error.retriable} for error in ours} == errors


def test_versions_accepted_by_each_release() -> None:
    reported: dict[str, Any] = {vector.release: vector.body for vector in vectors() if vector.kind == "apis"}
    assert {find_release(release) for release in reported} >= {"2.8", "3.2", "3.4", "3.9", "4.0", releases()[-1]}
    for release, apis in reported.items():
        name = find_release(release)
        assert name is not None
        accepted = {str(key): [one.low, one.high, one.unstable] for key, one in spoken_by(name).items()}
        theirs = {key: [entry["lowest"], entry["highest"], entry.get("unstable")] for key, entry in apis.items()}
        if release == "4.0.2":
            # It restored versions of JoinGroup that 4.0.0, the release of the table, had dropped.
            assert (accepted["11"], theirs["11"]) == ([2, 9, None], [0, 9, None])
            accepted["11"] = theirs["11"]
        assert accepted == theirs, release


def test_listeners_and_names_of_apis() -> None:
    names: dict[int, set[str]] = defaultdict(set)
    listeners: dict[int, set[str]] = defaultdict(set)
    for vector in vectors():
        if vector.kind == "apis":
            for key, entry in vector.body.items():
                names[int(key)].add(entry["name"])
                listeners[int(key)].update(entry["listeners"])
    assert tuple(sorted(names)) == api_keys()
    for number in api_keys():
        found = api(number)
        assert names[number] <= {found.name, *found.former_names}
        assert found.name in names[number]
        assert listeners[number] == set(found.listeners), found.name


def test_every_layout_has_vectors_or_a_reason() -> None:
    variants: dict[tuple[str, int | str, int], list[str]] = defaultdict(list)
    for vector in vectors():
        if vector.key is not None:
            found = api(vector.key)
            assert vector.name in (found.name, *found.former_names)
        if vector.kind in MESSAGES:
            name = vector.name if vector.key is None else vector.key
            variants[vector.kind, name, vector.version].append(vector.variant)
    assert all([name for name in names if name != INNER] == VARIANTS for names in variants.values())
    reasons = {(found.key, version) for name, version in without("pair") if (found := api_by_name(name)) is not None}
    assert len(reasons) == len(without("pair"))
    assert without("data") <= defined_data()
    assert variants.keys() == {
        *((kind, *pair) for pair in defined_pairs() - reasons for kind in ("request", "response")),
        *(("data", *pair) for pair in defined_data() - without("data")),
    }


def test_the_older_subscription_info_is_laid_out_like_the_newer_one() -> None:
    # Replaces the vectors that no class can write.
    older_ones = sorted(pair for pair in without("data") if pair[0] == "SubscriptionInfo")
    assert len(older_ones) == 6
    for name, version in older_ones:
        older, newer = data_schema(name, version), data_schema("SubscriptionInfoData", version)
        assert older.root == newer.root


def fields_of(struct: Struct, path: str = "") -> Iterator[tuple[str, Field]]:
    for field in (*struct.fields, *struct.tagged):
        yield f"{path}.{field.name}", field
        if field.struct is not None:
            yield from fields_of(field.struct, f"{path}.{field.name}")


def note(struct: Struct, body: dict[str, Any], path: str, seen: dict[str, set[str]]) -> None:
    """Record the values of each field of a layout in Kafka's JSON of a body."""
    ours = dict.fromkeys(field.name for field in (*struct.fields, *struct.tagged))
    values = {as_released(our_name(name), ours): value for name, value in body.items()}
    for field in (*struct.fields, *struct.tagged):
        place = f"{path}.{field.name}"
        if field.name not in values:
            sized = f"{field.name}_size_in_bytes" in values
            seen[place].add("set" if sized else "unset")
            continue
        value = values[field.name]
        seen[place].add("null" if value is None else "set")
        if value is None:
            continue
        if field.array:
            seen[place].add("several" if len(value) > 1 else "few")
        if field.struct is not None:
            for element in value if field.array else [value]:
                note(field.struct, element, place, seen)


def test_vectors_cover_every_field_and_null_is_allowed_where_declared() -> None:
    seen: dict[Layout, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    layouts: dict[Layout, Struct] = {}
    for vector in vectors():
        if vector.kind in MESSAGES:
            name = layout(vector)
            if name not in layouts:
                layouts[name] = root(vector)
            note(layouts[name], vector.body, "", seen[name])
    missing = []
    for name, struct in layouts.items():
        for place, field in fields_of(struct):
            wanted = {"set"}
            if field.tag is not None:
                wanted.add("unset")
            # For a tagged field with a null default, null is the same as unset.
            if field.nullable and not (field.tag is not None and field.default == "null"):
                wanted.add("null")
            if field.array:
                wanted.add("several")
            got = seen[name][place] - ({"few"} if field.array else set())
            if got != wanted:
                missing.append((name, place, got, wanted))
    assert missing == []


def as_in_json(field: Field) -> Any:
    """The default of a field that is neither array nor struct, as in Kafka's JSON (FieldSpec.fieldDefault)."""
    if field.default == "null":
        return None
    if field.type in ("string", "bytes"):
        return field.default or ""
    if field.type == "uuid":
        return "A" * 22
    if field.type == "bool":
        return field.default == "true"
    return float(field.default or 0) if field.type == "float64" else int(field.default or "0", 0)


def test_defaults() -> None:
    found = []
    compared = 0
    for vector in vectors():
        if vector.kind not in MESSAGES or vector.variant != "default":
            continue
        values = {our_name(name): value for name, value in vector.body.items()}
        for field in root(vector).fields:
            # Batches have no default that could be compared.
            if field.struct is None and not field.array and field.name in values and field.type != "records":
                compared += 1
                if values[field.name] != as_in_json(field):
                    found.append((vector.kind, vector.name, vector.version, field.name, values[field.name]))
    assert found == []
    assert compared > 1000


def test_pairs_proven_by_vectors_are_listed() -> None:
    lines = PART.lines(PROVEN_FILE.read_text(encoding="utf-8"))
    assert lines == proven_lines(), "python -m tests.vectors proven"
    pairs = {(vector.key, vector.version) for vector in vectors() if vector.key is not None}
    data = {(vector.name, vector.version) for vector in vectors() if vector.kind == "data"}
    assert len(lines) == len(pairs) + len(data) + 1
    found = proven()
    assert pairs == {pair for pair, proof in found.pairs.items() if proof.vectors}
    assert data == found.data.keys()
    assert found.batches[2].vectors


def test_values_that_differ_and_agree() -> None:
    for expected, got in (
        *((1, True), (True, 1), (1, 1.0), (None, ""), ("", None), ("QQ==", b"B"), ("A", b"A"), ("NaN", 1.0)),
        *(([1], [1, 2]), ({}, [])),
    ):
        assert list(compare(expected, got, "x")) != [], (expected, got)
    for expected, got in (
        *(("QQ==", b"A"), ("NaN", float("nan")), ("-Infinity", float("-inf")), (1.5, 1.5)),
        ({"topicId": None}, {"topic_id": None, "_topic_id": 1}),
    ):
        assert list(compare(expected, got, "x")) == [], (expected, got)
