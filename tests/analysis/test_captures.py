"""Answers about real captures, compared with the clients' own logs, and with those that were reviewed."""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis import find_question, make_parameters
from kafkasniff.analysis.export import Export, answer
from tests.analysis.reviewed import ANSWERS, FOLDER, file_of
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

Rows = list[dict[str, Any]]
Ask = Callable[..., Rows]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """The answer to a question about the export of a shipped capture, which is made once."""
    folder = tmp_path_factory.mktemp("exports")

    def asked(capture: str, name: str, **parameters: Any) -> Rows:
        path = folder / capture
        if not path.exists():
            result = kafkasniff("export", ROOT / "captures" / f"{capture}.pcap", "-q", "-o", path)
            assert result.code == 0, result.err
        question = find_question(name)
        accumulator = question(make_parameters(question, parameters))
        assert answer(Export.open(str(path)), accumulator) == []
        return list(accumulator.result().to_pylist())

    return asked


def reported(capture: str, kind: str) -> Rows:
    """The clients' log entries of one kind, in order."""
    lines = Path(ROOT / "captures" / f"{capture}.log.jsonl").read_text().splitlines()
    return [entry for line in lines if (entry := json.loads(line))["kind"] == kind]


@pytest.mark.parametrize("capture", ["java-codecs", "java-group-classic", "java-group-consumer"])
def test_every_request_by_client_and_version(capture: str, ask: Ask) -> None:
    sent = Counter((one["client_id"], one["api"], one["api_version"]) for one in reported(capture, "request"))
    found = ask(capture, "versions", all=True)
    assert Counter({(row["client_id"], row["api"], row["api_version"]): row["requests"] for row in found}) == sent
    answered = Counter((one["client_id"], one["api"]) for one in reported(capture, "response"))
    found = ask(capture, "latency", by="client,api")
    assert Counter({(row["client_id"], row["api"]): row["count"] + row["long_polls"] for row in found}) == answered


def length(value: Any) -> int:
    """Length in bytes of a key, a value or a part of a header, as the logs write them."""
    if isinstance(value, dict):
        return len(base64.b64decode(value["base64"]))
    return len((value or "").encode())


def by_topic(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        found[row["topic"]].append(row)
    return found


@pytest.mark.parametrize("capture", ["java-codecs", "librdkafka-codecs"])
def test_batches_records_and_their_sizes(capture: str, ask: Ask) -> None:
    produced = by_topic(reported(capture, "produced"))
    batches = by_topic(ask(capture, "batching"))
    sizes = by_topic(ask(capture, "record-sizes", direction="request"))
    producers = by_topic([row for row in ask(capture, "topic") if row["role"] == "producer"])
    again = Counter({row["topic"]: row["repeated_records"] for row in ask(capture, "retries")})
    assert batches.keys() == sizes.keys() == producers.keys() == produced.keys()
    for topic, records in produced.items():
        # A batch that its codec would not shrink is sent uncompressed.
        assert {row["compression"] for row in batches[topic]} <= {"none", *(one["codec"] for one in records)}
        # The client retransmitted some records; its application does not know.
        times = 1 + (again[topic] > 0)
        count = sum(row["records"] for row in batches[topic])
        assert count == len(records) * times
        assert [row["records"] for row in producers[topic]] == [row["records"] for row in sizes[topic]] == [count]
        keys = [length(one["key"]) for one in records if one["key"] is not None]
        values = [length(one["value"]) for one in records if one["value"] is not None]
        headers = [sum(length(part) for pair in one["headers"] for part in pair) for one in records]
        (size,) = sizes[topic]
        assert size["null_keys"] == (len(records) - len(keys)) * times
        assert size["null_values"] == (len(records) - len(values)) * times
        assert (size["key_max"], size["value_max"], size["headers_max"]) == (max(keys), max(values), max(headers))
        payload = sum(row["payload_bytes"] for row in batches[topic])
        assert payload == (sum(keys) + sum(values) + sum(headers)) * times


def test_a_producer_that_retried(ask: Ask) -> None:
    """The topic was new and its leader not ready yet, so librdkafka sent the same records to it again."""
    (refused, *_) = [row for row in ask("librdkafka-codecs", "errors") if row["api"] == "Produce"]
    assert (refused["topic"], refused["error_code"]) == ("codec-none", 6)
    found = ask("librdkafka-codecs", "retries")
    produced = Counter(
        one["partition"] for one in reported("librdkafka-codecs", "produced") if one["topic"] == "codec-none"
    )
    assert {row["partition"]: row["repeated_records"] for row in found} == produced
    assert {(row["kind"], row["client_id"]) for row in found} == {("records", "rdkafka-none")}
    assert ask("java-codecs", "retries") == []


@pytest.mark.parametrize("capture", ["java-group-classic", "java-group-consumer"])
def test_offsets_of_a_group(capture: str, ask: Ask) -> None:
    (expected,) = reported(capture, "offsets")
    found = [row for row in ask(capture, "lag") if row["group_id"] == expected["group"]]
    assert {f"{row['topic']}-{row['partition']}": row["committed_offset"] for row in found} == expected["offsets"]
    produced = Counter(f"{one['topic']}-{one['partition']}" for one in reported(capture, "produced"))
    for row in found:
        name = f"{row['topic']}-{row['partition']}"
        assert row["log_end_offset"] == produced[name]
        assert row["commit_lag"] == produced[name] - row["committed_offset"]


@pytest.mark.parametrize("name", one_in(5, [*ANSWERS], 2))
def test_answers_match_the_reviewed_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert ANSWERS[name]() == file_of(name).read_text(encoding="utf-8")


def test_every_file_is_compared() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {file_of(name).name for name in ANSWERS}
