"""Selects rows of a table by API and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from kafkasniff.analysis.parquet_footer import Footer

__all__ = ["RowSelection"]


class RowSelection(NamedTuple):
    """Rows whose API is one of `apis`, and whose time is within the bounds, both included; None: unrestricted."""

    apis: Sequence[str] | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    exact: bool = True
    """The time is in `time_ns`; otherwise in `time`, in microseconds, rounded down, as in the table `records`."""

    @property
    def _time(self) -> str:
        return "time_ns" if self.exact else "time"

    def _units(self, time_ns: int) -> int:
        # The first time of `records` must be rounded down, too.
        return time_ns if self.exact else time_ns // 1000

    @property
    def columns(self) -> list[str]:
        """The columns that the selection uses."""
        timed = self.since_ns is not None or self.until_ns is not None
        return [name for name, used in (("api", self.apis is not None), (self._time, timed)) if used]

    @property
    def expression(self) -> pc.Expression | None:
        """The selection in Arrow's form; None: all rows."""
        parts: list[pc.Expression] = []
        if self.apis is not None:
            parts.append(pc.field("api").isin(list(self.apis)))
        field = pc.field(self._time)
        if self.since_ns is not None:
            parts.append(field >= self._scalar(self.since_ns))
        if self.until_ns is not None:
            parts.append(field <= self._scalar(self.until_ns))
        whole: pc.Expression | None = None
        for part in parts:
            whole = part if whole is None else whole & part
        return whole

    def _scalar(self, time_ns: int) -> pa.Scalar:
        value = self._units(time_ns)
        return pa.scalar(value) if self.exact else pa.scalar(value, pa.timestamp("us", tz="UTC"))

    def can_match(self, footer: Footer, group: int) -> bool:
        """Whether a row group can have such rows, by its statistics.

        Raises ValueError if these are invalid.
        """
        if self.since_ns is not None or self.until_ns is not None:
            times = footer.integers(group, self._time)
            if times is not None:
                least, largest = times
                if self.since_ns is not None and largest < self._units(self.since_ns):
                    return False
                if self.until_ns is not None and least > self._units(self.until_ns):
                    return False
        texts = None if self.apis is None else footer.texts(group, "api")
        return texts is None or any(texts[0] <= api.encode() <= texts[1] for api in self.apis or ())
