"""A run with SASL and ACLs: users who may and may not, and a capture of what they try."""

from __future__ import annotations

from pathlib import Path

from captures.record.broker import RealBroker
from captures.record.distribution import SetupError, python_with
from captures.record.programs import CLIENTS, CONFLUENT, SASL
from captures.record.sniffer import Sniffer, SniffOptions
from tests.integration.processes import ClientError, finished, process

SERVED = SASL
"""Broker settings for the run, beside `programs.AUTHORIZER` and `SCRAM_USERS`."""

CAPTURE = "secured.pcap"

CLIENT_TIMEOUT_S = 120.0


def make(folder: Path, broker: RealBroker) -> None:
    """Make the run with a broker that is ready. Raises SetupError with the process's output if something does not start
    or fails, ClientError (a SetupError) if it is the client."""
    program = [python_with(*CONFLUENT), str(Path(__file__).with_name("clients") / "librdkafka_secured.py")]
    addresses = [f"127.0.0.1:{broker.port('INTERNAL')}", broker.bootstrap(SERVED.name)]
    with (
        Sniffer(folder / CAPTURE, [broker.port(SERVED.name)], SniffOptions()),
        process([*program, *addresses], folder, "client", PYTHONPATH=str(CLIENTS)) as client,
    ):
        try:
            finished(client, folder, "client", CLIENT_TIMEOUT_S)
        except SetupError as error:
            raise ClientError(str(error)) from None
