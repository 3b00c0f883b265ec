"""What a release offers beyond an older one, and which of it clients use already."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kafkasniff.analysis.between_brokers import is_between_brokers
from kafkasniff.kafka.dissectors import api
from kafkasniff.kafka.releases import first_release, spoken_by

__all__ = ["NewVersions", "new_versions"]


class NewVersions(msgspec.Struct, frozen=True):
    """Versions of an API that clients were not seen to use."""

    api: str
    api_key: int
    summary: str
    """What the API does."""
    from_max: int | None
    """Highest version in the older release; None where it does not have the API."""
    target_max: int
    used_max: int | None
    """Highest version that was seen from clients; None where they do not use the API."""
    unused: list[int]
    """New in the release, and above what was seen."""
    unstable: list[int]
    """Of these, those that need an opt-in there."""
    since: list[str]
    """Of each unused version, the release that had it first."""


def new_versions(target: str, older: str, used: Mapping[int, int]) -> list[NewVersions]:
    """By API key, what a release offers to clients beyond an older one and is not used; both are known releases.

    `used`: API key → highest version that a client was seen to speak.
    """
    before = spoken_by(older)
    found = []
    for key, now in spoken_by(target).items():
        definition = api(key)
        if definition is None or is_between_brokers(key):
            continue
        known = before[key].high if key in before else None
        lowest = now.low if known is None else max(known + 1, now.low)
        unused = [version for version in range(lowest, now.high + 1) if version > used.get(key, -1)]
        if unused:
            found.append(
                NewVersions(
                    definition.name,
                    key,
                    definition.summary,
                    known,
                    now.high,
                    used.get(key),
                    unused,
                    [version for version in unused if version == now.unstable],
                    [first_release(key, version) or target for version in unused],
                )
            )
    return found
