"""Which bodies consumers of rows want, of messages one by one."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.engine.wanted_bodies import ALWAYS, EVERY_BODY, NEVER, NO_BODY, WITH_ERRORS, WantedBodies
from kafkasniff.model import ErrorCode, Message

PRODUCE = WantedBodies({("request", "Produce"): None})
REPLICAS = WantedBodies({("request", "Fetch"): ("replica_state",)})
CLUSTERS = WantedBodies({("request", "Fetch"): ("cluster_id",)})
ERRORS = WantedBodies(errors=True)
NOBODY = {"replica_state": {"replica_id": -1, "replica_epoch": -1}, "cluster_id": None}
REPLICA = {"replica_state": {"replica_id": 2, "replica_epoch": 7}, "cluster_id": None}
NAMED = {"replica_state": {"replica_id": -1, "replica_epoch": -1}, "cluster_id": "lkc"}


def message(api: str | None, body: Any, *, failed: bool = False) -> Message:
    errors = (ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "error_code"),) if failed else ()
    return Message("request", 1, 1, 1, api, 17, "c", {}, body=body, errors=errors)


@pytest.mark.parametrize(
    ("wanted", "api", "body", "failed", "expected"),
    [
        (NO_BODY, "Produce", {}, True, False),
        (EVERY_BODY, None, {}, False, True),
        (PRODUCE, "Produce", {}, False, True),
        (PRODUCE, "Fetch", {}, True, False),
        (ERRORS, "Fetch", {}, True, True),
        (ERRORS, None, {}, False, False),
        (REPLICAS, "Fetch", NOBODY, False, False),
        (REPLICAS, "Fetch", NAMED, False, False),
        (REPLICAS, "Fetch", REPLICA, False, True),
        (REPLICAS, "Fetch", {}, False, False),
        (REPLICAS, "Fetch", None, False, False),
        (REPLICAS | CLUSTERS, "Fetch", NAMED, False, True),
        (REPLICAS | CLUSTERS, "Fetch", NOBODY, False, False),
        (REPLICAS | WantedBodies({("request", "Fetch"): None}), "Fetch", NOBODY, False, True),
        (PRODUCE | ERRORS, "Produce", {}, False, True),
        (PRODUCE | ERRORS, "Fetch", {}, True, True),
        (NO_BODY | EVERY_BODY, "Fetch", {}, False, True),
    ],
)
def test_wanted(wanted: WantedBodies, api: str | None, body: Any, failed: bool, expected: bool) -> None:
    assert wanted.wants(message(api, body, failed=failed)) is expected


def test_kinds() -> None:
    """What is known of a kind without a message."""
    wanted = PRODUCE | REPLICAS | CLUSTERS | ERRORS
    assert [wanted.of("request", api) for api in ("Produce", "Fetch")] == [ALWAYS, WITH_ERRORS]
    assert (REPLICAS.of("request", "Fetch"), REPLICAS.of("response", "Fetch")) == (NEVER, NEVER)
    assert wanted.fields("request", "Fetch") == ("replica_state", "cluster_id")
    assert wanted.fields("request", "Produce") == wanted.fields("response", "Fetch") == ()
