"""Where the handshake says that a capture was made."""

from __future__ import annotations

import pytest

from kafkasniff.model import NO_TIME
from kafkasniff.native.links import UNKNOWN, Network
from kafkasniff.timing import ExchangeNetwork
from tests.timing.timeline import MS


def network(broker: float, client: float) -> ExchangeNetwork:
    """With these durations of the handshake in ms."""
    handshake = [UNKNOWN if one < 0 else round(one * MS) for one in (broker, client)]
    nothing = [0, 0]
    return ExchangeNetwork.of(Network(handshake, [5, UNKNOWN], *[NO_TIME] * 4, *[nothing] * 5))


@pytest.mark.parametrize(
    ("broker_ms", "client_ms", "vantage"),
    [
        *((12, 0.02, "client"), (0.05, 12, "broker"), (6, 7, "between"), (0.03, 0.02, "anywhere")),
        *((6, -1, None), (-1, 6, None)),
    ],
)
def test_the_handshake_tells_where_the_capture_was_made(broker_ms: float, client_ms: float, vantage: str) -> None:
    assert network(broker_ms, client_ms).vantage == vantage


def test_what_is_unknown() -> None:
    found = network(1, -1)
    assert (found.handshake, found.to_broker, found.to_client, found.resent_at) == ((MS, None), 5, None, None)
