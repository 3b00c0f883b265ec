"""Settings of a Python worker of Spark: those that the command line and its own processes have."""

from __future__ import annotations

import functools
import gc
import os

import pyarrow as pa

from kafkasniff.native.allocation import keep_freed_memory
from kafkasniff.runtime.worker_processes import COLLECTION

__all__ = ["settle_worker"]


@functools.cache
def settle_worker() -> None:
    """Let this process reuse freed memory and search less often for cycles; only its first call has an effect.

    Without it, stage 1 took four to ten percent more CPU time. Workers may later run functions of others, which do not
    depend on either setting.
    """
    chosen = "ARROW_DEFAULT_MEMORY_POOL" in os.environ
    keep_freed_memory()
    if not chosen:
        # Spark imports Arrow before it calls us, so that the variable has no effect any more.
        pa.set_memory_pool(pa.system_memory_pool())
    if gc.get_threshold()[0] < COLLECTION[0]:
        gc.set_threshold(*COLLECTION)
    gc.freeze()
