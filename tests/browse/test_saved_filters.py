"""The file of saved filters."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kafkasniff.browse import saved_filters as module
from kafkasniff.browse.saved_filters import SavedFilters, filters_file
from kafkasniff.errors import OutputError


def test_they_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config" / "filters"
    saved = SavedFilters(path)
    for expression in ("acks == 0", "has topic", "acks == 0"):
        saved.save(expression)
    assert SavedFilters(path).expressions == saved.expressions == ["has topic", "acks == 0"]
    monkeypatch.setattr(module, "MAX_SAVED", 1)
    assert SavedFilters(path).expressions == ["acks == 0"]
    without_file = SavedFilters()
    without_file.save("has topic")
    assert without_file.expressions == ["has topic"]


def test_only_the_user_reads_them_and_no_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config" / "filters"
    other = tmp_path / "other"
    other.write_text("untouched")
    path.parent.mkdir()
    for name in ("filters", "filters.new"):
        path.with_name(name).symlink_to(other)
    saved = SavedFilters(path)
    saved.save('record.value ~ "alice"')
    assert other.read_text() == "untouched"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert SavedFilters(path).expressions == saved.expressions == ["untouched", 'record.value ~ "alice"']

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(OutputError, match="saved filters: disk full"):
        saved.save("acks == 0")
    assert sorted(one.name for one in path.parent.iterdir()) == ["filters", "filters.new"]


def test_what_cannot_be_read_or_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="saved filters"):
        SavedFilters(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="saved filters"):
        SavedFilters(tmp_path / "file" / "filters")


def test_place() -> None:
    assert filters_file({"HOME": "/home/a"}) == Path("/home/a/.config/kafkasniff/filters")
    assert filters_file({"HOME": "/home/a", "XDG_CONFIG_HOME": "/x"}) == Path("/x/kafkasniff/filters")
    assert filters_file({}) is None
