"""Features that a release adds to an older one, and whether clients already use them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kafkasniff.analysis.between_brokers import is_between_brokers
from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.apis.releases import first_release, spoken_by

__all__ = ["NewVersions", "new_versions"]


class NewVersions(msgspec.Struct, frozen=True):
    """Versions of an API that clients were not seen to use."""

    api: str
    """Name of the API."""
    api_key: int
    """Key of the API."""
    summary: str
    """The purpose of the API."""
    from_max: int | None
    """Highest version in the older release; null if it does not have the API."""
    target_max: int
    """Highest version in the release."""
    used_max: int | None
    """Highest version seen from clients; null if they do not use the API."""
    unused: list[int]
    """Versions that are new in the release and above those seen."""
    unstable: list[int]
    """Those of them that need an opt-in there."""
    since: list[str]
    """The first release of each unused version."""


def new_versions(target: str, older: str, used: Mapping[int, int]) -> list[NewVersions]:
    """By API key, the versions that a release adds for clients to an older one and that are unused; both are known.

    `used`: API key → highest version seen from clients.
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
