"""Names of error codes and of other constants, and the text of uuids."""

from __future__ import annotations

import pytest

from kafkasniff.analysis.detectors.registry import detector_names
from kafkasniff.kafka.apis.dissectors import api_by_name
from kafkasniff.kafka.schema.codes import (
    ZERO_UUID,
    error_by_code,
    error_codes,
    uuid_bytes,
    uuid_text,
)


def test_advice_for_every_code() -> None:
    """Including who has to act; other codes and APIs that a code refers to exist."""
    for code in error_codes()[:1] + error_codes()[2:]:
        error = error_by_code(code)
        assert error is not None
        assert error.settles != "-", error.name
        assert error.advice is not None, error.name
        assert error.advice[0].isupper(), error.name
        assert not error.advice.endswith("."), error.name
        head = None if error.like is None else error_by_code(error.like)
        assert (head is None) == (error.like is None)
        assert head is None or head.like is None, "families have one head"
        for cause in error.after:
            assert error_by_code(int(cause)) if cause.isdecimal() else cause in detector_names(), error.name
        assert all(api_by_name(name) is not None for name in (*error.exceptions, *error.advice_by_api))
    version = error_by_code(35)
    assert version is not None
    assert (version.settled_by("ApiVersions"), version.settled_by("Produce")) == ("protocol", "program")
    assert "group.version" in (version.advice_in("ShareGroupHeartbeat") or "")
    assert version.advice_in("Produce") == version.advice
    advice = [error.advice for code in error_codes() if (error := error_by_code(code)) is not None]
    assert len(set(advice)) > 120


def test_uuids() -> None:
    assert uuid_text(bytes(16)) == ZERO_UUID
    # The id of the metadata topic, as Kafka prints it.
    assert uuid_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_text(b"\xff" * 16) == "_____________________w"
    assert uuid_bytes("_____________________w") == b"\xff" * 16
    for bad in ("", "A" * 21, "!" * 22):
        with pytest.raises(ValueError, match="not a uuid"):
            uuid_bytes(bad)
