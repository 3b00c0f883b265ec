"""Copies of registries: each version at its paths, whole files, and answers that cannot be copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.errors import CaptureError, OutputError
from kafkasniff.values.copying import copy_registry
from kafkasniff.values.registries import FolderRegistry, HttpRegistry
from tests.cli.console import kafkasniff
from tests.values.registered import put, served


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
