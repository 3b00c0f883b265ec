"""Captures, sidecars, manifest and README agree with each other, by means that are not the product's."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.craft.read import file_bytes, raw_packets

FOLDERS = [
    ROOT / "captures",
    ROOT / "captures" / "tls",
    ROOT / "captures" / "request-logs",
    ROOT / "captures" / "client-logs",
]
"""tests/test_evidence_clients.py and tests/tls/test_captures.py compare them with the clients' logs."""


def entries(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["captures"]


def sidecar(folder: Path, entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / entry["sidecar"]).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_match_the_manifest(folder: Path) -> None:
    on_disk = {file.name for file in folder.iterdir() if file.is_file()}
    listed = {name for entry in entries(folder) for name in (entry["file"], entry["sidecar"])}
    if folder.name.endswith("-logs"):
        kind = folder.name.removesuffix("s").replace("-", ".")
        listed |= {f"{Path(entry['file']).stem}.{kind}.gz" for entry in entries(folder)}
    assert on_disk - {"manifest.json", "README.md", ".gitignore"} == listed
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for entry in entries(folder):
        capture, log = ((folder / entry[kind]).read_bytes() for kind in ("file", "sidecar"))
        digests = [hashlib.sha256(content).hexdigest() for content in (capture, log)]
        assert digests == [entry["sha256"], entry["sidecar_sha256"]], entry["file"]
        assert len(capture) == entry["bytes"] < 300_000, entry["file"]
        assert len(log) < 600_000, entry["file"]
        assert sum(1 for _ in raw_packets(file_bytes(folder / entry["file"]))) == entry["packets"], entry["file"]
        counts = Counter(
            (line["api"], str(line["api_version"])) for line in sidecar(folder, entry) if line["kind"] == "request"
        )
        listed_counts = {(api, version): n for api, table in entry["requests"].items() for version, n in table.items()}
        assert listed_counts == counts, entry["file"]
        assert f"| `{entry['file']}` | {entry['shows']} | {entry['client']} |" in readme
