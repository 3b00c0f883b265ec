"""Words for the problems that the stream engine reports as numbers."""

from __future__ import annotations

from typing import Final

GAP, ONE_DIRECTION, SYN_IGNORED, DATA_AFTER_RST, RST_IGNORED, RST_UNACKNOWLEDGED = range(6)
FIN_IGNORED, DATA_AFTER_FIN, OUT_OF_WINDOW = range(6, 9)
"""`stream_types.TcpProblem`."""
NO_BYTES: Final = -1
"""`stream_types.NO_BYTES`."""

TCP_KINDS: Final = (
    "tcp-gap",
    "one-direction",
    "tcp-syn-ignored",
    "tcp-data-after-rst",
    "tcp-rst-ignored",
    "tcp-rst-ignored",
    "tcp-fin-ignored",
    "tcp-data-after-fin",
    "tcp-out-of-window",
)
"""Kinds of problems, by number."""
UNREADABLE: Final = (
    "which are not a request",
    "truncated after {} of them",
    "too few for a {}",
    "which are not a response",
)
"""Why a frame is not a message, by number (`stream_types.Unreadable`)."""
TOO_SHORT: Final = 2
LEAST: Final = {"request": 8, "response": 4}
"""Bytes of a header: shorter frames cannot be a message."""

_DETAILS: Final = {
    SYN_IGNORED: "a SYN on an open connection was not followed by a new one",
    DATA_AFTER_RST: (
        "data that was sent after the other side had reset the connection: nobody reads it, and it is not decoded"
    ),
    FIN_IGNORED: "a FIN whose sequence number does not fit the stream",
    DATA_AFTER_FIN: "data after the end of the stream was ignored",
    OUT_OF_WINDOW: "data far outside the window was ignored",
}
_MAX_AHEAD: Final = 64 << 20
"""`stream_delivery.MAX_AHEAD`."""
_WITHOUT_BYTES: Final = frozenset({SYN_IGNORED, RST_IGNORED, RST_UNACKNOWLEDGED, FIN_IGNORED})


def tcp_problem(number: int, value: int, *, last: bool, is_client: bool) -> tuple[str, int | None]:
    """Detail and bytes of a TCP problem. `is_client`: it concerns the client's stream; `last`: of its kind."""
    if number == GAP:
        detail = f"{value} bytes of the stream are not in the capture"
    elif number == ONE_DIRECTION:
        captured, missing, by = (
            ("broker → client", "requests", "broker") if is_client else ("client → broker", "responses", "client")
        )
        detail = f"only {captured} was captured: the {by} acknowledged {value:,} bytes of {missing}"
    elif number == RST_IGNORED:
        detail = _reset(value, "the end of its stream")
    elif number == RST_UNACKNOWLEDGED:
        detail = _reset(value, "what its peer has sent, by its acknowledgement")
    else:
        detail = _DETAILS[number]
    if last:
        detail += " (further ones on this connection are not reported)"
    return detail, None if number in _WITHOUT_BYTES else value


def _reset(ahead: int, what: str) -> str:
    """A RST that is this many bytes ahead of an acceptable position."""
    side = "ahead of" if ahead > 0 else "behind"
    if 0 < ahead <= _MAX_AHEAD:
        guess = "bytes before it are not in the capture, or it is not of this connection"
    else:
        guess = "it is not of this connection"
    return f"a RST {abs(ahead):,} bytes {side} {what}: {guess}"
