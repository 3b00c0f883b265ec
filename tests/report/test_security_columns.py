"""Columns of who connects as whom."""

from __future__ import annotations

from typing import Any

import msgspec

from kafkasniff.analysis.detectors.identities import ClientIdentity, Transport
from kafkasniff.report.cells import MAX_DETAIL
from kafkasniff.report.security_columns import SECURITY

_PLAIN = ClientIdentity(
    *("10.0.0.1", ("app", "other app"), "java", "4.3", "10.0.0.9:9092", Transport(tls=False), "PLAIN", "alice"),
    *(False, True, "succeeded", None, 1234, 5, 5, []),
)


def _cells(**changes: Any) -> dict[str, str]:
    row = msgspec.structs.replace(_PLAIN, **changes)
    return {one.heading: text for one in SECURITY if (text := one.cell(row))}


def test_text_from_the_wire_is_escaped_and_cut() -> None:
    evil = "\x1b[31m" + "x" * 1000
    cells = _cells(
        principal=evil,
        mechanism=evil,
        reason=evil,
        client_ids=(evil,),
        by_token=True,
        authentication="failed",
        transport=Transport(tls=True, version="TLS 1.3", server_name=evil),
    )
    assert cells["principal"].startswith("token \\x1b[31mx")
    assert all(text.isprintable() and len(text) <= MAX_DETAIL + len("… +9,999") for text in cells.values())
