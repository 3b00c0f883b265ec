"""Detectors: each looks for one kind of trouble in the rows of the tables, and ends in findings (docs/check.md).

They are listed in `registry`, what each one is says `detector`, and what it finds `finding`. `Detectors` are some of
them together, for who has rows; `run` reads captures and exports.
"""

from __future__ import annotations

from kafkasniff.detectors.detector import Detector
from kafkasniff.detectors.finding import SEVERITIES, Evidence, Finding, Severity
from kafkasniff.detectors.registry import DETECTORS, detector_names, find_detector
from kafkasniff.detectors.running import Checked, run
from kafkasniff.detectors.together import Detectors

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
