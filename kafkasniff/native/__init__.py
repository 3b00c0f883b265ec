"""The Python side of the native kernel: finding and loading the library, and calling it.

It handles bytes and programs, and knows nothing of Kafka.
"""

from __future__ import annotations

from kafkasniff.native.library import Kernel, kernel, kernel_note

__all__ = ["Kernel", "kernel", "kernel_note"]
