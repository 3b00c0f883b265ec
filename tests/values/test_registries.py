"""Registries: what is asked and how often, credentials, and invalid answers."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.errors import CaptureError, OutputError
from kafkasniff.values.registries import (
    MAX_ANSWER,
    TOKEN,
    USER_INFO,
    FolderRegistry,
    HttpRegistry,
    RegistryError,
    copy_registry,
    path_of,
)
from kafkasniff.values.stage import MAX_GUESSES, MAX_IDS, MAX_REFERENCES, Readers
from tests.cli.console import kafkasniff
from tests.values.registered import Served, put, served, write_folder

STRING = {"schema": '"string"'}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Served]:
    with served(write_folder(tmp_path)) as found:
        yield found


class Reports(list[tuple[str, str]]):
    """Collects the problems of readers."""

    def __call__(self, kind: str, detail: str) -> None:
        self.append((kind, detail))


def test_each_schema_is_asked_for_once(registry: Served) -> None:
    reports = Reports()
    readers = Readers(HttpRegistry(registry.url, {}))
    guid = "239b72f7-63df-4e77-b795-60db867795da"
    for _ in range(3):
        assert readers.get(302, reports, sure=True) is not None
        assert readers.get(guid, reports, sure=True) is not None
        assert readers.get(304, reports, sure=True) is not None
        assert readers.get(17, reports, sure=True) is None
    assert registry.asked == [
        "/schemas/ids/302",
        f"/schemas/guids/{guid}",
        "/schemas/ids/304",
        "/schemas/ids/304?format=serialized",
        "/schemas/ids/17",
    ]
    assert reports == [("schema-unknown", f"schema 17 is not in {registry.url}")]
    assert registry.credentials == {None}


def test_credentials_are_sent_and_never_shown(registry: Served) -> None:
    basic = "Basic " + base64.b64encode(b"me:secret").decode()
    at = registry.url.partition("://")[2]
    for url, environ, wanted in (
        (registry.url, {USER_INFO: "me:secret"}, basic),
        (f"http://me:secret@{at}/", {}, basic),
        (f"http://me%3A:s%40@{at}", {}, "Basic " + base64.b64encode(b"me::s@").decode()),
        (registry.url, {TOKEN: "secret"}, "Bearer secret"),
        (registry.url, {"SCHEMA_REGISTRY_URL": "http://other"}, None),
    ):
        registry.credentials.clear()
        client = HttpRegistry(url, environ)
        assert client.get("schemas/ids/302")
        assert registry.credentials == {wanted}
        registry.status = 401
        with pytest.raises(RegistryError, match=f"answers 401 .*{USER_INFO}") as caught:
            client.get("schemas/ids/302")
        registry.status = 200
        assert "secret" not in str(caught.value) + client.name


def test_redirects_are_not_followed(registry: Served) -> None:
    """Credentials are for the registry that was named."""
    registry.status, registry.headers = 302, {"Location": f"{registry.url}/schemas/ids/303"}
    with pytest.raises(RegistryError, match="answers 302"):
        HttpRegistry(registry.url, {}).get("schemas/ids/302")
    assert registry.asked == ["/schemas/ids/302"]


def test_answers_that_are_none(registry: Served, tmp_path: Path) -> None:
    for answer in (b"<html>not found</html>", b"[]", b'{"error_code": 404}', b'{"error_code": "40403"}'):
        registry.missing = answer
        with pytest.raises(RegistryError, match="is this the URL of a registry"):
            HttpRegistry(registry.url, {}).get("schemas/ids/1")
    put(tmp_path, "schemas/ids/1", "x" * MAX_ANSWER)
    with pytest.raises(RegistryError, match="larger than 4 MiB"):
        FolderRegistry(tmp_path).get("schemas/ids/1")
    reports = Reports()
    readers = Readers(FolderRegistry(tmp_path))
    answers: list[Any] = [[], {}, {"schema": 1}, {"schema": "x", "schemaType": "XML"}, {"schema": "x"}]
    for number, answer in enumerate(answers, 1000):
        put(tmp_path, f"schemas/ids/{number}", answer)
        for _ in range(2):
            assert readers.get(number, reports, sure=True) is None
    assert [kind for kind, _ in reports] == ["schema-invalid"] * len(answers)


def test_an_answer_that_takes_too_long(registry: Served) -> None:
    seconds = itertools.count(step=11)
    with pytest.raises(RegistryError, match="does not answer: timed out"):
        HttpRegistry(registry.url, {}, lambda: next(seconds)).get("schemas/ids/302")


def test_bounds(tmp_path: Path) -> None:
    readers, reports = Readers(FolderRegistry(tmp_path)), Reports()
    put(tmp_path, f"schemas/ids/{MAX_GUESSES + 1}", STRING)
    for number in range(1, MAX_GUESSES + 2):
        assert readers.get(number, reports, sure=False) is None
    assert reports == []
    assert readers.get(MAX_GUESSES + 1, reports, sure=True) is not None
    for number in range(1, MAX_IDS + 10):
        readers.get(number, reports, sure=True)
    kinds = [kind for kind, _ in reports]
    assert kinds.count("schema-bound") == 1


def refers(schema: object, *references: tuple[str, str, int]) -> dict[str, Any]:
    """The answer for a schema with references."""
    listed = [{"name": name, "subject": subject, "version": version} for name, subject, version in references]
    return {"schema": json.dumps(schema), "references": listed}


def record(name: str, field: str) -> dict[str, Any]:
    """A record with a field of the type of the same name, in upper case."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": field.upper()}]}


def test_references(tmp_path: Path) -> None:
    put(tmp_path, "schemas/ids/1", refers(record("R", "a"), ("A", "a/ä", 2)))
    reports, registry = Reports(), FolderRegistry(tmp_path)
    assert Readers(registry).get(1, reports, sure=True) is None
    assert reports == [
        ("schema-invalid", f"schema 1 of {tmp_path} cannot be used: it refers to version 2 of a/ä, which is missing")
    ]
    put(tmp_path, path_of("a/ä", 2), refers(record("A", "b"), ("B", "b", 1)))
    put(tmp_path, path_of("b", 1), refers({"type": "enum", "name": "B", "symbols": ["X"]}))
    found = Readers(registry).get(1, reports, sure=True)
    assert found is not None
    assert found.read(b"\0", 0).value == {"a": {"b": "X"}}
    # A circle, and a chain without end.
    put(tmp_path, path_of("b", 1), refers("string", ("A", "a/ä", 2)))
    put(tmp_path, "schemas/ids/2", refers("string", ("0", "c", 0)))
    for number in range(MAX_REFERENCES + 1):
        put(tmp_path, path_of("c", number), refers("string", (str(number), "c", number + 1)))
    readers = Readers(registry)
    for number, what in ((1, "does not define"), (2, f"more than {MAX_REFERENCES} schemas")):
        reports.clear()
        assert readers.get(number, reports, sure=True) is None
        ((_, detail),) = reports
        assert what in detail


def test_paths_stay_in_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "registry"
    put(inside, "schemas/ids/1", STRING)
    put(tmp_path, "secret", STRING)
    registry = FolderRegistry(inside)
    assert registry.get("schemas/ids/1")
    for subject in ("..", "../..", "."):
        assert registry.get(path_of(subject, 1)) is None
    assert registry.get("../secret") is None
    assert registry.get("schemas/ids/1/x") is None


def version(subject: str, number: int, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "version": 1, "id": number, "schema": '"string"', **more}


def test_every_version_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    put(source, "subjects/orders-value/versions/1", version("orders-value", 7, guid="a-b"))
    put(source, "subjects/orders-value/versions/2", version("orders-value", 8, schemaType="PROTOBUF"))
    put(source, "subjects/a%2F..%2Fb/versions/1", version("a/../b", 9))
    with served(source) as registry:
        registry.lists = {
            "/subjects": json.dumps(["orders-value", "a/../b", "deleted"]).encode(),
            "/subjects/orders-value/versions": b"[1, 2]",
            "/subjects/a%2F..%2Fb/versions": b"[1]",
        }
        found = kafkasniff("schemas", "fetch", "--registry", registry.url, "-o", str(target))
        assert (found.code, found.err) == (0, f"kafkasniff: 3 versions of schemas in {target}\n")
        assert "/subjects/orders-value/versions/2?format=serialized" in registry.asked
    assert {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()} == {
        *("schemas/ids/7.json", "schemas/ids/8.json", "schemas/ids/9.json", "schemas/guids/a-b.json"),
        *("subjects/orders-value/versions/1.json", "subjects/orders-value/versions/2.json"),
        "subjects/a%2F..%2Fb/versions/1.json",
    }
    copied = FolderRegistry(target).get("schemas/ids/7")
    assert copied is not None
    assert json.loads(copied) == version("orders-value", 7, guid="a-b")


def test_answers_that_cannot_be_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    put(source, "subjects/x/versions/1", ["no schema"])
    put(source, "subjects/x/versions/2", {"schema": "no id"})
    with served(source) as registry:
        for subjects, versions, what in (
            (b"{", b"", "the answer to /subjects is not a list"),
            (b"[1]", b"", "the answer to /subjects is not a list"),
            (b'["x"]', b'["1"]', "the answer to /subjects/x/versions is not a list"),
            (b'["x"]', b"[1]", "the answer to /subjects/x/versions/1 is not a schema"),
            (b'["x"]', b"[2]", "the answer to /subjects/x/versions/2 has no id"),
        ):
            registry.lists = {"/subjects": subjects, "/subjects/x/versions": versions}
            with pytest.raises(CaptureError, match=what):
                copy_registry(HttpRegistry(registry.url, {}), tmp_path / "target")
        put(source, "subjects/x/versions/3", version("x", 3))
        registry.lists["/subjects/x/versions"] = b"[3]"
        (tmp_path / "target").write_bytes(b"")
        with pytest.raises(OutputError, match="cannot write to"):
            copy_registry(HttpRegistry(registry.url, {}), tmp_path / "target")
