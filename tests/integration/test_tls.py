"""`kafkasniff live --keylog` on a real broker's TLS listener, while a client writes the key log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from captures.record.journal import kafka_python_log, read_reports
from tests.integration.encrypted import SERVED
from tests.integration.processes import OWN_STATE

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.root, pytest.mark.xdist_group("broker")]


def test_every_request_that_the_client_reports_is_in_the_output(encrypted_run: Path) -> None:
    folder = encrypted_run
    lines = [json.loads(line) for line in (folder / "live.out").read_bytes().splitlines()]
    kinds = {line["kind"] for line in lines if line["type"] == "problem"}
    assert kinds <= {"request-unanswered", "tcp-rst-ignored"} | OWN_STATE
    said = list(kafka_python_log((folder / "client.err").read_text(encoding="utf-8").splitlines()))
    names = ("api_key", "api_version", "correlation_id", "client_port")
    for kind in ("request", "response"):
        logged = Counter(tuple(entry[name] for name in names) for entry in said if entry["kind"] == kind)
        seen = Counter(
            (*(line[name] for name in names[:3]), int(line["client"].rpartition(":")[2]))
            for line in lines
            if line["type"] == kind
        )
        assert logged
        assert logged - seen == Counter(), kind
        # Responses that arrived while the client closed are not in its log; all requests are.
        assert kind == "response" or seen == logged

    reports = read_reports(folder / "client.out")
    produced = {(entry["key"], entry["value"]) for entry in reports if entry["kind"] == "produced"}
    assert len(produced) == len(SERVED)
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
