"""Maps clients to groups: Fetch and others do not name their group, but other requests of the same client do."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import column, in_any, only
from kafkasniff.analysis.partials import Partials, Shape

__all__ = ["MEMBER_APIS", "MEMBER_SHAPE", "groups_by_client", "member_rows"]

MEMBER_APIS: Final = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
    "OffsetCommit",
)
"""Requests that only members of a group send. OffsetFetch and TxnOffsetCommit are sent by others, too."""
_CLIENT: Final[Any] = (("client_id", pa.string()), ("client_ip", pa.string()))
MEMBER_SHAPE: Final = Shape(
    keys=(*_CLIENT, ("group_id", pa.string())), measures=(("requests", pa.int64(), "sum"),), weight="requests"
)


def member_rows(batch: pa.RecordBatch) -> dict[str, Any]:
    """Rows for a partial answer of `MEMBER_SHAPE`."""
    batch = only(batch, pc.and_(in_any(batch, "api", MEMBER_APIS), pc.is_valid(column(batch, "group_id"))))
    keys = {name: column(batch, name) for name in ("client_id", "client_ip", "group_id")}
    return {**keys, "requests": pa.array([1] * batch.num_rows, pa.int64())}


def groups_by_client(part: Partials) -> dict[tuple[str | None, str | None], str | None]:
    """(client id, address) → group; None if such clients are in several."""
    found: dict[tuple[str | None, str | None], str | None] = {}
    for row in part.table().to_pylist():
        client = (row["client_id"], row["client_ip"])
        found[client] = None if client in found else row["group_id"]
    return found
