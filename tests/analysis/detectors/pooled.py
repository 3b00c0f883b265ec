"""Detectors with low thresholds, and their findings in a pool of rows."""

from __future__ import annotations

from kafkasniff.analysis.detectors import Detectors

# Low enough that the rows of the pool yield findings.
LOW = (
    "unanswered-requests.after=0",
    "late-answers.late=1ms",
    "metadata-storms.at_least=1",
    "all-topics.at_least=1",
    "rebalance-storms.at_least=1",
    "frequent-commits.at_least=1",
    "oversized-messages.limit=4000",
    "small-batches.at_least=1",
    "small-batches.records=20",
    "small-batches.per_second=0",
    "uncompressed-batches.size=1",
    "uncompressed-batches.batch=0",
    "throttled-clients.total=0",
    "empty-fetches.at_least=1",
    "empty-fetches.share=0",
    "empty-fetches.wait=1m",
)


def fresh() -> Detectors:
    return Detectors(settings=LOW)
