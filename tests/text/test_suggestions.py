"""Names that somebody may have meant."""

from __future__ import annotations

import pytest

from kafkasniff.text.suggestions import suggestion

NAMES = ("BrokerHeartbeat", "list_offsets", "broker-gone", "Produce")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("Prodce", "; did you mean Produce?"),
        ("PRODUCE", "; did you mean Produce?"),
        ("brokergone", "; did you mean broker-gone?"),
        ("ListOffset", "; did you mean list_offsets?"),
        ("brokerh", "; did you mean BrokerHeartbeat?"),
        ("zzz", "; see the list"),
        ("", "; see the list"),
    ],
)
def test_the_closest_name_or_what_to_do(word: str, hint: str) -> None:
    assert suggestion(word, NAMES, "see the list") == hint
    assert suggestion(word, NAMES) == ("" if "see" in hint else hint)
