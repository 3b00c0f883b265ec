"""Validation of files that an earlier process staged: they may be damaged, or written by somebody else.

Arrow trusts a file's metadata about buffers, and their content: offsets beyond the data, indices beyond a dictionary,
or text that is not UTF-8 could crash the process or leak its memory. So every batch is validated in full. Files that
this process, or another one of the same run, has staged are not validated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
import orjson
import pyarrow as pa

from kafkasniff.errors import KafkasniffError
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.exports.staged import MappedFiles
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.staged import STAGED, StagedParts

__all__ = ["DamagedRunError", "check_staged"]

_NAME: Final = re.compile(r"\d{5}\.arrow", re.ASCII)
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""End of a stream of Arrow (Columnar format, "IPC Streaming Format")."""
_RECORD_BATCH: Final = 3
_DICTIONARY_BATCH: Final = 2
"""`MessageHeader` of Arrow's Message.fbs."""
_NEVER_NULL: Final = {"exchanges": ("topics", "partitions", "problems")}


class DamagedRunError(KafkasniffError):
    """The files of an interrupted run cannot be used: the run has to be repeated from its start."""


def check_staged(folders: Iterable[ConfinedPath], rows: int) -> None:
    """Raises DamagedRunError unless folders hold only staged rows, `rows` of them in total."""
    found = 0
    for folder in folders:
        for table in folder.names():
            for name in (folder / table).names():
                path = folder.below(table, name)
                if table not in TABLE_NAMES or not _NAME.fullmatch(name):
                    raise DamagedRunError(f"{path} is not a file of staged rows")
                try:
                    found += _rows_of(path, table)
                except (OSError, ValueError, pa.ArrowException, msgspec.MsgspecError) as error:
                    raise DamagedRunError(f"{path} is damaged: {' '.join(str(error).split())}") from error
    if found != rows:
        raise DamagedRunError(f"{found} rows are staged, not {rows}")


def _rows_of(path: ConfinedPath, table: str) -> int:
    """Number of rows of a file, all of which are valid. Raises ValueError, Arrow's and msgspec's exceptions."""
    files = MappedFiles()
    content = files.view(path)
    if len(content) < len(_END) or content[-len(_END) :].to_pybytes() != _END:
        raise ValueError("its end is missing")
    # Compressed buffers state their size, and Arrow would allocate that much memory. We write none.
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(content)):
        if _is_compressed(message.metadata):
            raise ValueError("it is compressed")
    rows = 0
    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        if not reader.schema.equals(STAGED[table]):
            raise ValueError(f"its columns are not those of {table}")
        for batch in reader:
            batch.validate(full=True)
            for column in _NEVER_NULL.get(table, ()):
                if batch.column(column).null_count:
                    raise ValueError(f"{column} is null")
            if table == "exchanges":
                _check_pending(batch)
            rows += len(batch)
            files.release()
    return rows


def _check_pending(batch: pa.RecordBatch) -> None:
    waiting = batch.select(["_pending", "request_body", "response_body"]).filter(batch.column("_pending").is_valid())
    for data, *bodies in zip(*(column.to_pylist() for column in waiting.columns), strict=True):
        if msgspec.msgpack.decode(data, type=StagedParts).bodies:
            for body in bodies:
                if body is not None:
                    orjson.loads(body)


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether the body of a message is compressed, by the flatbuffer that describes it."""
    flat = memoryview(metadata)

    def number(at: int, size: int) -> int:
        if not 0 <= at <= len(flat) - size:
            raise ValueError("its metadata are damaged")
        return int.from_bytes(flat[at : at + size], "little")

    def field(table: int, index: int) -> int:
        """Position of a field in a table; 0 if the table lacks it."""
        places = table - int.from_bytes(number(table, 4).to_bytes(4, "little"), "little", signed=True)
        slot = 4 + 2 * index
        if slot >= number(places, 2):
            return 0
        offset = number(places + slot, 2)
        return table + offset if offset else 0

    def below(table: int, index: int) -> int:
        at = field(table, index)
        if not at:
            raise ValueError("its metadata are damaged")
        return at + number(at, 4)

    message = number(0, 4)
    kind = field(message, 1)
    found = number(kind, 1) if kind else 0
    if found not in {_RECORD_BATCH, _DICTIONARY_BATCH}:
        return False
    batch = below(message, 2)
    if found == _DICTIONARY_BATCH:
        batch = below(batch, 1)
    return field(batch, 3) != 0
