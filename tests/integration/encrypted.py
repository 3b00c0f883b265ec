"""A run with TLS: one client on two listeners. `kafkasniff live --keylog` reads the secrets while they are written."""

from __future__ import annotations

from pathlib import Path

from captures.record import certificates
from captures.record.broker import RealBroker
from captures.record.distribution import SetupError, python_with
from captures.record.programs import CLIENTS, KAFKA_PYTHON_PACKAGES
from captures.record.tls import listener
from tests.integration.processes import ClientError, finished, live, process

SERVED = (listener("NEW", "TLSv1.3"), listener("OLD", "TLSv1.2", kind="rsa"))
"""Broker settings for the run, once `certificates.made()`."""

CLIENT_TIMEOUT_S = 60.0


def make(folder: Path, broker: RealBroker) -> None:
    """Make the run with a broker that is ready. Raises SetupError with the process's output if something does not start
    or fails, ClientError (a SetupError) if it is the client."""
    keys = folder / "keys.log"  # does not exist yet when the capture begins
    ports = [broker.port(one.name) for one in SERVED]
    addresses = [broker.bootstrap(one.name) for one in SERVED]
    words = ",".join("plain" for _ in SERVED)
    program = [python_with(*KAFKA_PYTHON_PACKAGES), str(CLIENTS / "kafka_python_tls.py"), words, *addresses]
    environment = {"CERTIFICATES": str(certificates.FOLDER), "SSLKEYLOGFILE": str(keys)}
    with live(folder, ports, "--keylog", str(keys)), process(program, folder, "client", **environment) as client:
        try:
            finished(client, folder, "client", CLIENT_TIMEOUT_S)
        except SetupError as error:
            raise ClientError(str(error)) from None
