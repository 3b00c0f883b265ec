"""Folders of captures and exports as arguments of commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkasniff import read
from kafkasniff.analysis.detectors.registry import run
from kafkasniff.capture.timeline.locations import divided
from kafkasniff.errors import CaptureError
from kafkasniff.runtime.export_manifest import is_export
from tests.cli.console import kafkasniff

NAMES = ("captures/librdkafka-acks0.pcap", "captures/librdkafka-1.4.pcap")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Captures beside a foreign manifest, as in `captures/`."""
    place = tmp_path / "captures"
    place.mkdir()
    for name in NAMES:
        shutil.copy(name, place)
    (place / "manifest.json").write_text('{"captures": []}')
    return place


def test_the_library_takes_the_same_folders(folder: Path, tmp_path: Path) -> None:
    files = sorted(map(str, folder.glob("*.pcap")))
    assert len(list(read(folder))) == len(list(read([*files]))) > 0
    only = ["without-authentication", "acks-zero"]
    assert run([str(folder)], only=only) == run(files, only=only)
    tables = tmp_path / "tables"
    assert kafkasniff("export", "-q", "-o", tables, folder).code == 0
    assert divided([str(tables), str(folder), "-"]) == ([*files, "-"], [str(tables)])
    reported = {(one.detector, one.count) for one in run([str(tables)], only=only).findings}
    assert {(one.detector, one.count) for one in run([str(folder)], only=only).findings} >= reported
    with pytest.raises(CaptureError, match="is an export, not a folder of captures"):
        next(read(tables))
    with pytest.raises(CaptureError, match="contains neither captures"):
        run([str(tmp_path / "tables" / "state")])


@pytest.mark.parametrize(
    ("manifest", "tables", "expected"),
    [
        (None, ("exchanges",), False),
        ("{", ("exchanges",), True),
        ("{", (), False),
        ('{"format": "kafkasniff-export"}', (), True),
        ('{"format": "another"}', ("exchanges",), False),
        ('{"format": 5}', ("records",), True),
    ],
)
def test_requirements_of_an_export_folder(
    tmp_path: Path, manifest: str | None, tables: tuple[str, ...], expected: bool
) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    for table in tables:
        (tmp_path / table).mkdir()
    assert is_export(tmp_path) is expected
    assert not is_export(tmp_path / "none")
    assert not is_export("-")
