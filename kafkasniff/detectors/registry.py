"""The detectors by name; a module is imported when one of its detectors is wanted."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any, Final

from kafkasniff.detectors.detector import Detector
from kafkasniff.errors import UsageError

__all__ = ["DETECTORS", "detector_names", "find_detector"]

DETECTORS: Final[tuple[tuple[str, str], ...]] = (
    ("undecoded-traffic", "kafkasniff.detectors.undecoded"),
    ("broker-gone", "kafkasniff.detectors.broker_gone"),
    ("unanswered-requests", "kafkasniff.detectors.waiting"),
    ("late-answers", "kafkasniff.detectors.waiting"),
    ("hidden-errors", "kafkasniff.detectors.errors_inside"),
    ("not-leader", "kafkasniff.detectors.leaders"),
    ("metadata-storms", "kafkasniff.detectors.metadata"),
    ("all-topics", "kafkasniff.detectors.metadata"),
    ("rebalance-storms", "kafkasniff.detectors.rebalances"),
    ("lost-members", "kafkasniff.detectors.rebalances"),
    ("frequent-commits", "kafkasniff.detectors.commits"),
    ("refused-commits", "kafkasniff.detectors.commits"),
    ("oversized-messages", "kafkasniff.detectors.batches"),
    ("small-batches", "kafkasniff.detectors.batches"),
    ("uncompressed-batches", "kafkasniff.detectors.batches"),
    ("repeated-sequences", "kafkasniff.detectors.producers"),
    ("acks-zero", "kafkasniff.detectors.producers"),
    ("lost-records", "kafkasniff.detectors.lost_records"),
    ("hanging-transactions", "kafkasniff.detectors.transactions"),
    ("fenced-producers", "kafkasniff.detectors.transactions"),
    ("throttled-clients", "kafkasniff.detectors.throttling"),
    ("empty-fetches", "kafkasniff.detectors.fetching"),
    ("unreached-listeners", "kafkasniff.detectors.listeners"),
    ("mixed-broker-versions", "kafkasniff.detectors.broker_versions"),
    ("connection-churn", "kafkasniff.detectors.churn"),
    ("sasl-failures", "kafkasniff.detectors.refusals"),
    ("wrong-protocol", "kafkasniff.detectors.wrong_protocol"),
    ("tls-failures", "kafkasniff.detectors.tls_failures"),
    ("slow-broker", "kafkasniff.detectors.slow_broker"),
    ("transport-trouble", "kafkasniff.detectors.transport_trouble"),
    ("skewed-partitions", "kafkasniff.detectors.skew"),
)
"""Name and module, in the order in which they are listed."""


def detector_names() -> tuple[str, ...]:
    """All names."""
    return tuple(name for name, _ in DETECTORS)


def find_detector(name: str) -> type[Detector[Any]]:
    """The detector of a name. Raises UsageError, with a suggestion, where there is none."""
    wanted = name.strip().replace("_", "-").lower()
    module = dict(DETECTORS).get(wanted)
    if module is None:
        close = [one for one in detector_names() if wanted and one.startswith(wanted)]
        close = close or difflib.get_close_matches(wanted, detector_names(), n=1, cutoff=0.5)
        raise UsageError(f"no detector is called {name!r}" + (f"; {close[0]}?" if close else ""))
    for value in vars(import_module(module)).values():
        if isinstance(value, type) and issubclass(value, Detector) and getattr(value, "name", None) == wanted:
            return value
    raise LookupError(f"{module} has no detector {wanted}")
