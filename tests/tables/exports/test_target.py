"""What a commit puts into the manifest, whatever the manifest is written to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkasniff.errors import OutputError
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports.captures import ManifestCapture
from kafkasniff.tables.exports.manifest import FileEntry, Manifest, WrittenFile
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.target import ExportTarget

OPTIONS = ExportOptions(tables=("exchanges",))


class Kept(ExportTarget):
    """Keeps what it is given."""

    def __init__(self, folder: Path) -> None:
        self.name = "kept"
        self.manifest = None
        self.partial = open_own_folder(folder)
        self.published: list[tuple[list[str], bytes]] = []
        self.error: OSError | None = None

    def state(self) -> bytes | None:
        return self.published[-1][1] if self.published else None

    def discard(self) -> None:
        self.partial.remove_tree()

    def _publish(self, manifest: Manifest, encoded: bytes, new: Sequence[WrittenFile], state: bytes) -> None:
        if self.error is not None:
            raise self.error
        assert f'"runs": {manifest.runs}'.encode() in encoded
        self.manifest = manifest
        self.published.append(([file.path for file in new], state))

    def _close(self, *, failed: bool) -> None:
        self.partial.close()


def written(name: str, rows: int) -> dict[str, list[WrittenFile]]:
    return {"exchanges": [WrittenFile(name, rows, 10 * rows)]}


def test_open_rows_are_replaced_by_the_next_run(tmp_path: Path) -> None:
    with Kept(tmp_path) as target:
        assert (target.run, target.file_name, target.state_name) == (1, "part-00001", "state/run-00001.state")
        target.commit(OPTIONS, [ManifestCapture("a", 1)], written("a", 3), written("a-open", 2), b"1")
        found = target.commit(OPTIONS, [ManifestCapture("b", 1)], written("b", 4), written("b-open", 1), b"2")
    assert found.tables["exchanges"].files == [
        FileEntry("a", 3, 30, 1),
        FileEntry("b", 4, 40, 2),
        FileEntry("b-open", 1, 10, 2, open=True),
    ]
    assert (found.runs, found.tables["exchanges"].rows, found.state) == (2, 8, "state/run-00002.state")
    assert [capture.name for capture in found.captures] == ["a", "b"]
    assert target.published == [(["a", "a-open"], b"1"), (["b", "b-open"], b"2")]


def test_open_rows_stay_if_a_run_does_not_continue_the_last_one(tmp_path: Path) -> None:
    with Kept(tmp_path) as target:
        target.commit(OPTIONS, [], written("a", 3), written("a-open", 2), b"1")
        found = target.commit(
            OPTIONS, [], written("b", 4), {}, b"2", continues=False, quarantined=[ManifestCapture("q", 0)]
        )
    assert [(entry.path, entry.open) for entry in found.tables["exchanges"].files] == [
        ("a", False),
        ("a-open", False),
        ("b", False),
    ]
    assert [capture.name for capture in found.quarantined] == ["q"]


def test_errors_say_where(tmp_path: Path) -> None:
    with Kept(tmp_path) as target:
        target.error = OSError(28, "No space left on device")
        with pytest.raises(OutputError, match="cannot write kept: No space left on device"):
            target.commit(OPTIONS, [], {}, {}, b"")
        assert target.manifest is None
