"""`kafkasniff live --keylog` on a real broker's listener with TLS, while a client writes the key log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from captures.record import certificates
from captures.record.broker import RealBroker
from captures.record.distribution import python_with
from captures.record.journal import kafka_python_log, read_reports
from captures.record.programs import CLIENTS, KAFKA_PYTHON_PACKAGES
from captures.record.tls import listener
from tests.integration.processes import OWN_STATE, finished, live, process
from tests.integration.run import RELEASE

pytestmark = [pytest.mark.broker, pytest.mark.root, pytest.mark.xdist_group("broker")]

CLIENT_TIMEOUT_S = 60.0


def test_every_request_that_the_client_reports_is_in_the_output(run_folder: Path) -> None:
    folder = run_folder / "tls"
    folder.mkdir()
    keys = folder / "keys.log"  # not there yet when the capture begins
    certificates.made()
    listeners = [listener("NEW", "TLSv1.3"), listener("OLD", "TLSv1.2", kind="rsa")]
    with RealBroker(folder / "broker", version=RELEASE, listeners=listeners) as broker:
        ports = [broker.port(one.name) for one in listeners]
        addresses = [broker.bootstrap(one.name) for one in listeners]
        program = [python_with(*KAFKA_PYTHON_PACKAGES), str(CLIENTS / "kafka_python_tls.py"), "plain,plain", *addresses]
        environment = {"CERTIFICATES": str(certificates.FOLDER), "SSLKEYLOGFILE": str(keys)}
        with live(folder, ports, "--keylog", str(keys)), process(program, folder, "client", **environment) as client:
            finished(client, folder, "client", CLIENT_TIMEOUT_S)
    lines = [json.loads(line) for line in (folder / "live.out").read_bytes().splitlines()]
    assert {line["kind"] for line in lines if line["type"] == "problem"} <= {
        "request-unanswered",
        "tcp-rst-ignored",
    } | OWN_STATE

    said = list(kafka_python_log((folder / "client.err").read_text(encoding="utf-8").splitlines()))
    told = ("api_key", "api_version", "correlation_id", "client_port")
    for kind in ("request", "response"):
        logged = Counter(tuple(entry[name] for name in told) for entry in said if entry["kind"] == kind)
        seen = Counter(
            (*(line[name] for name in told[:3]), int(line["client"].rpartition(":")[2]))
            for line in lines
            if line["type"] == kind
        )
        assert logged
        assert logged - seen == Counter(), kind
        # Answers that came as the client closed are not in its log; requests all are.
        assert kind == "response" or seen == logged

    reports = read_reports(folder / "client.out")
    produced = {(entry["key"], entry["value"]) for entry in reports if entry["kind"] == "produced"}
    assert len(produced) == len(listeners)
    for api, kind, topics, partitions in (
        ("Produce", "request", "topic_data", "partition_data"),
        ("Fetch", "response", "responses", "partitions"),
    ):
        records = {
            (record["key"], record["value"])
            for line in lines
            if (line["type"], line.get("api")) == (kind, api)
            for topic in line["body"][topics]
            for partition in topic[partitions]
            for batch in partition["records"]["batches"]
            for record in batch["records"]
        }
        assert records == produced, api
