"""Certificates that servers show."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest

from kafkasniff.tls.certificates import shown_certificate
from tests.analysis.security.test_view import seen
from tests.conftest import ROOT

EPOCH_2200 = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000_000


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x03\x02\x01\x00", b"x" * 1000])
def test_what_is_no_certificate(data: bytes) -> None:
    assert shown_certificate(data, None, None) is None


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ImportError):
        shown_certificate(b"", None, None)
    view = seen(ROOT / "captures" / "tls" / "tls12-kafka-python.pcapng")
    assert all(one.transport.certificate is None for one in view.identities())
    assert any("kafkasniff[tls]" in note for note in view.notes())
