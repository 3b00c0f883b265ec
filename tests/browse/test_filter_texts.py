"""Filter expressions: from a cell, completed, saved."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kafkasniff.browse import filter_texts as module
from kafkasniff.browse.filter_texts import SavedFilters, completed, condition
from kafkasniff.browse.index import Row
from kafkasniff.browse.screen.list_lines import LIST_COLUMNS
from kafkasniff.errors import OutputError
from tests.browse.opened import capture, fill, rows_of


def listed(expression: str | None = None) -> list[Row]:
    return rows_of(fill(capture("java-errors"), expression))


ROWS = listed()


def values(row: Row, column: str) -> object:
    value = getattr(row, column)
    if column == "api":
        return value.rpartition(" v")[0]
    return bool(value) if column == "problems" else value


@pytest.mark.parametrize("sign", ["==", "!="])
@pytest.mark.parametrize("column", [column.name for column in LIST_COLUMNS])
def test_the_filter_keeps_what_the_cell_says(column: str, sign: str) -> None:
    like = next((row for row in ROWS if row.error and row.subject), ROWS[0])
    made = condition(like, column, sign)  # type: ignore[arg-type]
    assert made is not None
    found = listed(made)
    if column == "subject":
        # The list shows the first of several topics.
        assert {row.subject for row in found if not row.others} == (
            {like.subject} if sign == "==" else {row.subject for row in ROWS if not row.others} - {like.subject}
        )
    else:
        wanted = [row for row in ROWS if (values(row, column) == values(like, column)) == (sign == "==")]
        assert [row.exchange_id for row in found] == [row.exchange_id for row in wanted]


@pytest.mark.parametrize(
    ("column", "value", "sign", "made"),
    [
        ("error", "", "==", 'error == "NONE"'),
        ("error", "no response", "==", 'status == "no_response"'),
        ("error", "error 999", "!=", "not (error == 999)"),
        ("error", "unheard of", "==", None),
        ("api", "API 99 v3", "==", "api_key == 99"),
        ("api", "?", "==", None),
        ("client_id", "", "==", "not has client_id"),
        ("client_id", '"my app"', "==", 'client_id == "my app"'),
        ("client_id", r"\x1b[2J", "==", r'client_id == "\x1b[2J"'),
        ("client_id", "long… +700", "==", None),
        ("client_id", "a", ">", None),
        ("subject", "", "==", "not has topic and not has group_id and not has transactional_id"),
        ("latency", None, ">", None),
        ("time", None, "==", None),
        ("packet", None, "==", None),
    ],
)
def test_cells(column: str, value: object, sign: str, made: str | None) -> None:
    assert condition(ROWS[0]._replace(**{column: value}), column, sign) == made  # type: ignore[arg-type]


SEEN = {
    "api": ["Fetch v4", "Fetch v18", "FindCoordinator v4"],
    "client": ["10.0.0.5:4000"],
    "broker": ["10.0.0.9:9092"],
    "error": ["unanswered", "UNKNOWN_TOPIC_OR_PARTITION", "error 999"],
    "subject": ["", "orders", "orders-dlq", '"two words"', "long… +300"],
}


CASES = [
    ("", None),
    ("lat", "latency_ms"),
    ("latency_ms", None),
    ("not (gro", "not (group"),
    ("acks == 0 and top", "acks == 0 and topic"),
    ("nonsense", None),
    ("api ==", 'api =="Fetch"'),
    ('api == "Fi', 'api == "FindCoordinator"'),
    ('api == "fi', None),
    ('api == "Fetch"', None),
    ('topic == "ord', 'topic == "orders"'),
    ('topic == "orders-', 'topic == "orders-dlq"'),
    ('topic == "two', None),
    ('topic == "long', None),
    ('host in ("10.0.0.5:4000", "10.0.0.9', 'host in ("10.0.0.5:4000", "10.0.0.9:9092"'),
    ('topic startswith "', 'topic startswith "orders"'),
    ('acks == "', None),
    ('error == "', 'error == "UNKNOWN_TOPIC_OR_PARTITION"'),
    ('error == "un', None),
]


def test_completed() -> None:
    for expression, whole in CASES:
        assert completed(expression, lambda column: SEEN.get(column, [])) == whole, expression


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
