"""What every question is: rows in, partial answers that merge, a table out.

A question is a class with a name, a sentence and parameters; an object of it is one accumulator. It does no I/O: the
command line gives it the rows of an export, Spark those of a partition, and `stats`, `check` and `live` those that
they have.

    question = Latency(LatencyParameters(by=("api", "broker")))
    for batch in batches:
        question.update(batch)
    question.merge(other)
    question.result()                          # a pyarrow.Table

The answer depends on the rows alone, not on their order or their batches, nor on how partial answers were merged (see
`partials` for what happens above a bound). `state()` and `from_state()` carry a partial answer to another process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec
import pyarrow as pa

from kafkasniff.analysis.known_clusters import ALONE, Known
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.hosts import Hosts

__all__ = ["Accumulator", "Parameters", "Reading"]

MAX_STATE: Final = 1 << 30
"""Bytes of a partial answer that are taken in; all bounds together stay far below it."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parameters: each field has a default and says in `Meta(description=…)` what it does."""


class Reading(msgspec.Struct, frozen=True):
    """What a question reads of a table."""

    columns: tuple[str, ...]
    apis: tuple[str, ...] | None = None
    """Only rows of these APIs matter; others may be left out, and are ignored."""
    optional: bool = False
    """The question has an answer without this table, too."""

    def __post_init__(self) -> None:
        # Dimensions and questions may want the same column; a batch that has it twice cannot be asked for it.
        msgspec.structs.force_setattr(self, "columns", tuple(dict.fromkeys(self.columns)))


P = TypeVar("P", bound=Parameters)


class _State(msgspec.Struct):
    """A partial answer on its way to another process."""

    question: str
    parameters: Any
    parts: dict[str, tuple[bytes, list[int]]]


class Accumulator(ABC, Generic[P]):
    """One question's rows so far."""

    name: ClassVar[str]
    """What it is called on the command line."""
    summary: ClassVar[str]
    """One sentence."""
    parameters_type: ClassVar[type[Parameters]] = Parameters
    clusters: Known = ALONE
    """Which brokers are of one cluster, where that is known when the answer is wanted."""
    hosts: Hosts | None = None
    """What the user says of addresses; for questions that ask (`asks_hosts`)."""
    asks_hosts: ClassVar[bool] = False

    def __init__(self, parameters: P | None = None) -> None:
        """Raises UsageError for parameters that make no sense."""
        self.parameters: P = self.parameters_type() if parameters is None else parameters  # type: ignore[assignment]
        self.check()
        self.parts = {name: Partials(shape) for name, shape in self.shapes().items()}

    def check(self) -> None:
        """Raise UsageError for parameters that make no sense."""
        return

    @abstractmethod
    def reads(self) -> Mapping[str, Reading]:
        """Tables, with the columns that are needed of them."""

    @abstractmethod
    def shapes(self) -> Mapping[str, Shape]:
        """The partial answers by name."""

    @abstractmethod
    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of a table; columns beside those of `reads` are ignored."""

    @abstractmethod
    def result(self) -> pa.Table:
        """The answer to the rows so far: always the same columns for the same parameters, rows in a fixed order."""

    def merge(self, other: Self) -> None:
        """Take another's rows. Raises ValueError where it is another question or has other parameters."""
        if type(other) is not type(self) or other.parameters != self.parameters:
            raise ValueError("only partial answers to the same question can be merged")
        for name, part in self.parts.items():
            part.merge(other.parts[name])

    def notes(self) -> list[str]:
        """What a reader of the answer must know: sentences on what bounds have cost."""
        return [sentence for part in self.parts.values() for sentence in _notes(part)]

    def state(self) -> bytes:
        """The rows so far: msgpack, the tables in it as Arrow streams."""
        parts = {name: part.dump() for name, part in self.parts.items()}
        return msgspec.msgpack.encode(_State(self.name, self.parameters, parts))

    @classmethod
    def from_state(cls, state: bytes) -> Self:
        """The accumulator that `state()` was called on. Raises ValueError for anything else."""
        if len(state) > MAX_STATE:
            raise ValueError(f"a partial answer of more than {MAX_STATE} bytes")
        try:
            told = msgspec.msgpack.decode(state, type=_State)
            if told.question != cls.name:
                raise ValueError(f"a partial answer to {told.question!r}, not to {cls.name!r}")
            parameters = msgspec.convert(told.parameters, cls.parameters_type)
        except msgspec.DecodeError as error:
            raise ValueError(f"no partial answer: {error}") from None
        made = cls(parameters)  # type: ignore[arg-type]
        if told.parts.keys() != made.parts.keys():
            raise ValueError("a partial answer of another version")
        for name, (rows, lost) in told.parts.items():
            made.parts[name].load(rows, lost)
        return made


def _notes(part: Partials) -> list[str]:
    lost, bound = part.lost, part.shape.bound
    if lost.level:
        return [f"one of {1 << lost.level:,} was looked at: there are more than {bound:,}"]
    if not lost.rows:
        return []
    if part.shape.keep == "earliest":
        return [f"{lost.rows:,} later rows are left out: {bound:,} are kept"]
    return [
        f"{lost.rows:,} small groups are left out ({lost.weight:,} in all): {bound:,} are kept; "
        f"a group that is shown may be up to {lost.undercount:,} too low"
    ]
