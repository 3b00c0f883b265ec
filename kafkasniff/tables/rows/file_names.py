"""Names of the files of an export, relative to its folder. A manifest with any other name is rejected."""

from __future__ import annotations

import re
from typing import Final

from kafkasniff.tables.rows.schemas import TABLE_NAMES

STATES: Final = "state"
"""Folder of the states."""

_DATE: Final = r"\d{4}-\d{2}-\d{2}"
_IS_DATE: Final = re.compile(_DATE, re.ASCII)
_TABLE_FILE: Final = re.compile(
    rf"({'|'.join(TABLE_NAMES)})/date={_DATE}/part-[A-Za-z0-9_-]{{1,200}}\.parquet", re.ASCII
)
_STATE_FILE: Final = re.compile(rf"{STATES}/run-(\d{{5,12}})(-[0-9a-f]{{12}})?\.state", re.ASCII)
_OWN_FILE: Final = re.compile(r"part-(\d{5,12})(-[0-9a-f]{12})?(-open)?(-\d{5,7}){1,3}\.parquet", re.ASCII)
"""The run, in object stores a random number, and numbers of the task, in stage 1 of Spark its window, and the file."""


def is_date(name: str) -> bool:
    """Whether this is a date as in names of folders: YYYY-MM-DD."""
    return _IS_DATE.fullmatch(name) is not None


def is_table_file(path: str, table: str) -> bool:
    """Whether this is `TABLE/date=YYYY-MM-DD/part-….parquet` of a table."""
    match = _TABLE_FILE.fullmatch(path)
    return match is not None and match[1] == table


def is_state_file(path: str) -> bool:
    """Whether this is `state/run-NNNNN.state`."""
    return _STATE_FILE.fullmatch(path) is not None


def run_of(path: str) -> int | None:
    """The run that a file of a table, or a state, belongs to; None if the name is not one that only exports use.

    `path`: of a state in the export; of other files the name is enough.
    """
    match = _STATE_FILE.fullmatch(path) or _OWN_FILE.fullmatch(path.rpartition("/")[2])
    return None if match is None else int(match[1])


def was_open(path: str) -> bool:
    """Whether a table's file was written with rows that were unfinished when their captures ended."""
    match = _OWN_FILE.fullmatch(path.rpartition("/")[2])
    return match is not None and match[3] is not None


def date_of(path: str) -> str:
    """The date of a table's file."""
    return path.split("/")[1].removeprefix("date=")
