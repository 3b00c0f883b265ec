"""The Python side of the native kernel: finding and loading the library, and calling it.

It knows bytes and programs, nothing of Kafka. Without the library everything is read by Python.
"""

from __future__ import annotations

from kafkasniff.native.library import Kernel, kernel, kernel_note

__all__ = ["Kernel", "kernel", "kernel_note"]
