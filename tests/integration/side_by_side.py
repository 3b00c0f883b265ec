"""All runs, one after the other, with one broker: starting it takes as long as any of them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from captures.record import certificates
from captures.record.broker import Listener, RealBroker
from captures.record.programs import QUICK_GROUPS
from tests.integration import encrypted, run

WORKLOAD = "workload"
ENCRYPTED = "encrypted"
"""Folders of the runs in the common folder."""

PROPERTIES = {
    **QUICK_GROUPS,
    # Frequent heartbeats, but no member is removed because the machine is busy.
    "group.consumer.session.timeout.ms": "30000",
    # The records' timestamps are from 2023, so a broker that runs for longer than 30 s would begin to delete them.
    "log.retention.ms": "-1",
}


def make(folder: Path) -> None:
    """Make the runs. Raises SetupError with the process's output if something does not start or fails, ClientError (a
    SetupError) if it is a client."""
    certificates.made()
    listeners = [Listener(name) for name in run.LISTENERS]
    broker = RealBroker(
        folder / "broker",
        version=run.RELEASE,
        listeners=[*listeners, *encrypted.SERVED],
        properties=PROPERTIES,
        java_options=run.UNVERIFIED,
    )
    broker.choose_ports()
    for name in (WORKLOAD, ENCRYPTED):
        (folder / name).mkdir()
    with ExitStack() as stack:
        stack.callback(broker.stop)
        threads = stack.enter_context(ThreadPoolExecutor(1))
        starting = threads.submit(broker.start)
        run.make(folder / WORKLOAD, broker, starting.result)
        encrypted.make(folder / ENCRYPTED, broker)
    shutil.rmtree(broker.data_directory)


def load_workload(folder: Path) -> run.Run:
    return run.load(folder / WORKLOAD)
