"""Both runs, made side by side with one broker: starting it takes as long as either of them, and both wait a good deal.

The workload's clients have left before the broker is killed.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from captures.record.broker import Listener, RealBroker
from captures.record.programs import QUICK_GROUPS
from tests.integration import kills, run
from tests.integration.broker_log import REQUEST_LOG

WORKLOAD = "workload"
KILLS = "kills"
"""Folders of the runs in that of both."""

PROPERTIES = {
    **QUICK_GROUPS,
    # Quick heartbeats, but no member is thrown out because the machine is busy.
    "group.consumer.session.timeout.ms": "30000",
    # The killed client asks for as little as this allows.
    "group.min.session.timeout.ms": "1000",
    # The records' timestamps are of 2023: a broker that runs for longer than 30 s would begin to delete them.
    "log.retention.ms": "-1",
}


def make(folder: Path) -> None:
    """Make the runs. Raises SetupError, with what the process said, where something does not start or fails; of these
    ClientError where it is a client."""
    listeners = [Listener(name) for name in (*run.LISTENERS, *kills.LISTENERS)]
    broker = RealBroker(
        folder / "broker",
        version=run.RELEASE,
        listeners=listeners,
        properties=PROPERTIES,
        java_options=[REQUEST_LOG],
    )
    broker.choose_ports()
    for name in (WORKLOAD, KILLS):
        (folder / name).mkdir()
    with ExitStack() as stack:
        stack.callback(broker.stop)
        threads = stack.enter_context(ThreadPoolExecutor(2))
        starting = threads.submit(broker.start)
        working = threads.submit(run.make, folder / WORKLOAD, broker, starting.result)
        kills.make(folder / KILLS, broker, starting.result, working.result)
    shutil.rmtree(broker.data_directory)


def load_workload(folder: Path) -> run.Run:
    """Read the files of the run in which all goes well."""
    return run.load(folder / WORKLOAD, folder / "broker" / "server.log")


def load_kills(folder: Path) -> kills.Kills:
    """Read the files of the run with the kills."""
    return kills.load(folder / KILLS, folder / "broker" / "server.log")
