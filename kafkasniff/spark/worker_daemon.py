"""pyspark's daemon of Python workers (`spark.python.daemon.module`), quiet when Spark hangs up.

When a session ends, Java closes its connections to workers that may still have output to flush. pyspark's own daemon
prints a traceback then, and a user would look for what went wrong.
"""

from __future__ import annotations

import socket
from typing import Final

from pyspark import daemon

_WORK: Final = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Work for Spark; returns a status other than 0 if Spark has hung up, which ends the worker."""
    try:
        return _WORK(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    # The daemon calls it by its name.
    daemon.worker = worker
    daemon.manager()
