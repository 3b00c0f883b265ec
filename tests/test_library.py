"""`read`: exchanges of captures with the names that other messages contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kafkasniff
from kafkasniff.library import can_be_read_twice
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.craft.write import pcap_bytes
from tests.enrich.talks import ORDERS, both


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "names.pcap"
    path.write_bytes(pcap_bytes(both(), nanoseconds=True))
    return path


def first_name(path: Path, **options: object) -> object:
    fetch = next(one for one in kafkasniff.read(path, **options) if one.request and one.request.api == "Fetch")  # type: ignore[arg-type]
    return fetch.request.body["topics"][0].get("_topic_name")


def test_names(capture: Path) -> None:
    assert first_name(capture) is None
    assert first_name(capture, topic_ids={ORDERS[1]: "given"}) == "given"
    assert first_name(capture, two_pass=True, ports=[9092], max_frame=1_000_000, show_secrets=True) == "orders"


def test_a_single_response() -> None:
    found = kafkasniff.decode_response(bytes.fromhex("00000005 0023 00000000"), 18, 0)
    assert (found.correlation_id, found.body, found.problems) == (5, {"error_code": 35, "api_keys": []}, ())


def test_without_enrichment(capture: Path) -> None:
    found = list(kafkasniff.read([capture], enrich=False))
    assert len(found) == 7
    assert "_topic_name" not in repr(found)
    assert {one.broker_id for one in found} == {None}
    assert {one.broker_id for one in kafkasniff.read([capture], two_pass=True)} == {3}


def test_a_pipe_is_read_only_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert not can_be_read_twice(str(pipe))
    assert not can_be_read_twice("-")
    assert not can_be_read_twice(os.devnull)
    assert can_be_read_twice(str(tmp_path / "missing"))
    with pytest.raises(kafkasniff.UsageError, match="can be read only once"):
        next(kafkasniff.read(pipe, two_pass=True))
    with pytest.raises(kafkasniff.CaptureError):
        next(kafkasniff.read(tmp_path / "missing", two_pass=True))


def test_values_are_decoded_by_a_registry() -> None:
    capture = ROOT / "captures" / "librdkafka-schemas.pcap"
    registry = str(capture.with_suffix(".registry"))
    values = [
        record["_value"]["value"]
        for exchange in kafkasniff.read(capture, registry=registry)
        if exchange.request is not None and exchange.request.api == "Produce" and exchange.request.body is not None
        for topic in exchange.request.body["topic_data"]
        if topic["name"] == "json-orders"
        for record in topic["partition_data"][0]["records"]["batches"][0]["records"]
    ]
    assert values == [{"id": 1, "item": "lamp"}, {"id": 70000, "item": "größe 數"}]


JAVA = ROOT / "captures" / "java-errors.pcap"
FILTER = 'error == "UNKNOWN_TOPIC_OR_PARTITION" and time >= "+1ms"'


def test_a_filter_selects() -> None:
    found = list(kafkasniff.read(JAVA, filter=FILTER))
    expected = command("decode", "-q", "--json", "--filter", FILTER, JAVA).objects
    assert {one.exchange for one in found} == {one["exchange"] for one in expected if one["type"] != "problem"}
    assert 0 < len(found) < len(list(kafkasniff.read(JAVA)))


def test_a_table_is_that_of_an_export(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    assert command("export", "-q", "--filter", FILTER, JAVA, "-o", tmp_path / "tables").code == 0
    exported = pq.read_table(tmp_path / "tables" / "exchanges", partitioning=None)
    exchanges = kafkasniff.read(JAVA, filter=FILTER)
    table = exchanges.to_arrow()
    assert table.to_pylist() == exported.to_pylist()
    # Reading a table takes no exchange away.
    assert len(list(exchanges)) == table.num_rows
    pytest.importorskip("pandas")
    assert list(exchanges.to_pandas()["api"]) == table["api"].to_pylist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": [9092]}, r"read\(\) has no option port; did you mean ports\?"),
        ({"filtr": "x"}, r"read\(\) has no option filtr; did you mean filter\?"),
        ({"filter": "apii == 1"}, 'column 1: unknown field "apii"; did you mean api\\?'),
    ],
)
def test_misuse_is_reported_at_once(options: dict[str, object], message: str) -> None:
    with pytest.raises(kafkasniff.UsageError, match=message):
        kafkasniff.read(JAVA, **options)  # type: ignore[arg-type]
