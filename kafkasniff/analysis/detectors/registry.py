"""The detectors by name; each module is imported only when one of its detectors is needed."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, Final

from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.errors import UsageError
from kafkasniff.text.printable import suggestion

DETECTORS: Final[tuple[tuple[str, str], ...]] = (
    ("undecoded-traffic", "kafkasniff.analysis.detectors.undecoded"),
    ("broker-gone", "kafkasniff.analysis.detectors.broker_gone"),
    ("unanswered-requests", "kafkasniff.analysis.detectors.waiting"),
    ("late-answers", "kafkasniff.analysis.detectors.late_answers"),
    ("hidden-errors", "kafkasniff.analysis.detectors.errors_inside"),
    ("not-leader", "kafkasniff.analysis.detectors.leaders"),
    ("metadata-storms", "kafkasniff.analysis.detectors.metadata"),
    ("all-topics", "kafkasniff.analysis.detectors.metadata"),
    ("rebalance-storms", "kafkasniff.analysis.detectors.rebalances"),
    ("still-members", "kafkasniff.analysis.detectors.still_members"),
    ("lost-members", "kafkasniff.analysis.detectors.rebalances"),
    ("shared-instances", "kafkasniff.analysis.detectors.instances"),
    ("repeated-starts", "kafkasniff.analysis.detectors.progress"),
    ("growing-lag", "kafkasniff.analysis.detectors.progress"),
    ("repeated-deliveries", "kafkasniff.analysis.detectors.share_groups"),
    ("blocked-streams-groups", "kafkasniff.analysis.detectors.streams_groups"),
    ("offsets-out-of-range", "kafkasniff.analysis.detectors.offsets"),
    ("missing-topics", "kafkasniff.analysis.detectors.topics"),
    ("expired-sessions", "kafkasniff.analysis.detectors.sessions"),
    ("frequent-commits", "kafkasniff.analysis.detectors.commits"),
    ("refused-commits", "kafkasniff.analysis.detectors.commits"),
    ("oversized-messages", "kafkasniff.analysis.detectors.batches"),
    ("small-batches", "kafkasniff.analysis.detectors.batches"),
    ("uncompressed-batches", "kafkasniff.analysis.detectors.batches"),
    ("repeated-sequences", "kafkasniff.analysis.detectors.producers"),
    ("acks-zero", "kafkasniff.analysis.detectors.producers"),
    ("malformed-messages", "kafkasniff.analysis.detectors.damaged"),
    ("damaged-records", "kafkasniff.analysis.detectors.damaged"),
    ("lost-records", "kafkasniff.analysis.detectors.lost_records"),
    ("overwritten-records", "kafkasniff.analysis.detectors.overwritten"),
    ("hanging-transactions", "kafkasniff.analysis.detectors.transactions"),
    ("stuck-stable-offsets", "kafkasniff.analysis.detectors.stable_offsets"),
    ("fenced-producers", "kafkasniff.analysis.detectors.transactions"),
    ("throttled-clients", "kafkasniff.analysis.detectors.throttling"),
    ("empty-fetches", "kafkasniff.analysis.detectors.fetching"),
    ("unreached-listeners", "kafkasniff.analysis.detectors.listeners"),
    ("clients-at-controllers", "kafkasniff.analysis.detectors.controllers"),
    ("other-clusters", "kafkasniff.analysis.detectors.other_clusters"),
    ("mixed-broker-versions", "kafkasniff.analysis.detectors.broker_versions"),
    ("connection-churn", "kafkasniff.analysis.detectors.churn"),
    ("sasl-failures", "kafkasniff.analysis.detectors.refusals"),
    ("wrong-protocol", "kafkasniff.analysis.detectors.wrong_protocol"),
    ("tls-failures", "kafkasniff.analysis.detectors.tls_failures"),
    ("encrypted-trouble", "kafkasniff.analysis.detectors.encrypted"),
    ("slow-broker", "kafkasniff.analysis.detectors.slow_broker"),
    ("transport-trouble", "kafkasniff.analysis.detectors.transport_trouble"),
    ("forgotten-connections", "kafkasniff.analysis.detectors.forgotten"),
    ("cut-connections", "kafkasniff.analysis.detectors.cut_connections"),
    ("denied", "kafkasniff.analysis.detectors.denied"),
    ("plaintext-credentials", "kafkasniff.analysis.detectors.insecure"),
    ("plaintext-scram", "kafkasniff.analysis.detectors.insecure"),
    ("old-tls", "kafkasniff.analysis.detectors.insecure"),
    ("weak-cipher", "kafkasniff.analysis.detectors.insecure"),
    ("bad-certificate", "kafkasniff.analysis.detectors.insecure"),
    ("expiring-certificate", "kafkasniff.analysis.detectors.insecure"),
    ("without-authentication", "kafkasniff.analysis.detectors.insecure"),
    ("skewed-partitions", "kafkasniff.analysis.detectors.skew"),
)
"""Name and module, in the order of listings."""
SECURITY: Final = (
    *("denied", "plaintext-credentials", "plaintext-scram", "old-tls", "weak-cipher", "bad-certificate"),
    *("expiring-certificate", "without-authentication", "sasl-failures", "tls-failures"),
)
"""Those that `security` shows."""


def detector_names() -> tuple[str, ...]:
    """All names."""
    return tuple(name for name, _ in DETECTORS)


@functools.cache
def find_detector(name: str) -> type[Detector[Any]]:
    """The detector of a name. Raises UsageError, with a suggestion, if there is none."""
    wanted = name.strip().replace("_", "-").lower()
    module = dict(DETECTORS).get(wanted)
    if module is None:
        hint = suggestion(wanted, detector_names(), "`kafkasniff check --list` lists them")
        raise UsageError(f"no detector is called {name!r}{hint}")
    for value in vars(import_module(module)).values():
        if isinstance(value, type) and issubclass(value, Detector) and getattr(value, "name", None) == wanted:
            return value
    raise LookupError(f"{module} has no detector {wanted}")
