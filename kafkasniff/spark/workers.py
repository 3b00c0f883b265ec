"""Python workers of Spark: their settings, and a daemon that starts them (`spark.python.daemon.module`).

pyspark's own daemon prints a traceback when Java closes its connections to workers that may still have output to flush,
as it does when a session ends. A user would look for what went wrong.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import socket

import pyarrow as pa

from kafkasniff.runtime.memory_limits import keep_freed_memory
from kafkasniff.runtime.worker_processes import COLLECTION


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


def _serve() -> None:
    """Run pyspark's daemon. A worker that Spark has hung up on ends with a status other than 0."""
    from pyspark import daemon

    # Workers are forks of this process, and need not import what tasks do.
    importlib.import_module("kafkasniff.spark.table_rows")

    work = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:
        try:
            return work(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    _serve()
