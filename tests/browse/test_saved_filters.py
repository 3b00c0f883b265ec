"""The file of saved filters."""

from __future__ import annotations

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
