"""Recordings of trouble, and of traffic that only looks like it: ``captures/faults``.

Each module of this package lists its recordings in ``FAULTS``. A recording is a function that starts brokers and
clients on a ``Stage`` and breaks something. The client programs keep no journal: tests compare with the findings and
problems in ``tests/analysis/detectors/faults``, which are read in review.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

from ..distribution import OLD_VERSION
from .stage import Fault, Stage, record

__all__ = ["Fault", "Stage", "faults", "record"]


ALSO_OLD = ("broker-restarted", "broker-restarted-as-planned", "brokers-restarted-in-turns")
"""Recordings that exist with brokers of an old release, too, which stop and start in other steps: `NAME-old.pcap`."""


def faults() -> dict[str, Fault]:
    """All recordings by file name."""
    own = {"__main__", "clients", "faulty_certificates", "stage", "wire"}
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in own)
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = {fault.file: fault for module in modules for fault in module.FAULTS}
    for name in ALSO_OLD:
        old = dataclasses.replace(found[f"{name}.pcap"], file=f"{name}-old.pcap", version=OLD_VERSION)
        found[old.file] = old
    return found
