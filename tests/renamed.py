"""Fields with another name in a newer Kafka release than in the one that introduced their version. Definitions keep the
first name, because programs read it; Kafka's newest classes are compared under that name."""

from __future__ import annotations

from typing import Any, Final

RENAMED: Final = {
    "generation_id_or_member_epoch": "generation_id",  # TxnOffsetCommit up to v5, in 4.4
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",  # StreamsGroupHeartbeat v0, in 4.4
}


def as_released(name: str, ours: dict[str, Any]) -> str:
    """Our name of a struct's field in Kafka's classes."""
    older = RENAMED.get(name)
    return older if older is not None and name not in ours and older in ours else name
