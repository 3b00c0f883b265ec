"""Detectors: each looks for one kind of trouble in the rows of the tables and ends in findings (docs/check.md).

`registry` lists them and runs them: `Detectors` combines several for callers that have rows; `run` reads captures and
exports. `detector` defines what a detector is, `finding` what it reports.
"""

from __future__ import annotations

from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import SEVERITIES, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.registry import DETECTORS, Checked, Detectors, detector_names, find_detector, run

__all__ = [
    "DETECTORS",
    "SEVERITIES",
    "Checked",
    "Detector",
    "Detectors",
    "Evidence",
    "Finding",
    "Severity",
    "detector_names",
    "find_detector",
    "run",
]
