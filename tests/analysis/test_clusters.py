"""Clusters of brokers as messages name them, and what is kept separate by cluster."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.analysis.clusters import Clusters
from kafkasniff.analysis.detectors import run
from kafkasniff.analysis.known_clusters import ALONE, Known
from tests.analysis.detectors.network_scenes import Attempt
from tests.analysis.detectors.scenes import produce, records
from tests.analysis.detectors.talks import Talk, checked
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

A, B, C = ("10.0.0.1", 9092), ("10.0.0.2", 9092), ("10.0.0.3", 9092)
SCHEMA = pa.schema(
    [
        ("api", pa.string()),
        ("broker_ip", pa.string()),
        ("broker_port", pa.int32()),
        ("error_code", pa.int32()),
        ("status", pa.string()),
        ("request_body", pa.string()),
        ("response_body", pa.string()),
    ]
)


def row(api: str, broker: tuple[str, int], request: str = "{}", response: str = "{}", error: int = 0) -> dict[str, Any]:
    values = (api, *broker, error, "answered", request, response)
    return dict(zip(SCHEMA.names, values, strict=True))


def listed(broker: tuple[str, int], cluster: str | None, *brokers: tuple[str, int]) -> dict[str, Any]:
    """A Metadata response of `broker`."""
    inside = ",".join(f'{{"node_id":1,"host":"{host}","port":{port}}}' for host, port in brokers)
    reported = "null" if cluster is None else f'"{cluster}"'
    return row("Metadata", broker, response=f'{{"brokers":[{inside}],"cluster_id":{reported}}}')


def known(rows: Sequence[dict[str, Any]]) -> Known:
    found = Clusters()
    found.update(pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA))
    return found.known()


def labels(*rows: dict[str, Any]) -> dict[str, str]:
    return dict(known(rows).labels)


def test_a_response_identifies_its_broker_and_those_that_it_lists() -> None:
    assert labels(listed(A, "one", A, B), listed(C, "other", C)) == {
        "10.0.0.1:9092": "one",
        "10.0.0.2:9092": "one",
        "10.0.0.3:9092": "other",
    }


def test_brokers_listed_together_belong_to_one_cluster() -> None:
    assert labels(listed(A, None, A, B), listed(B, "one")) == {"10.0.0.1:9092": "one", "10.0.0.2:9092": "one"}
    assert labels(listed(B, None, A, B), listed(C, None, C)) == {
        "10.0.0.1:9092": "10.0.0.1:9092",
        "10.0.0.2:9092": "10.0.0.1:9092",
        "10.0.0.3:9092": "10.0.0.3:9092",
    }


def test_a_request_counts_where_the_broker_accepted_it() -> None:
    vote = '{"cluster_id":"one","topics":[]}'
    assert labels(row("Vote", A, vote)) == {"10.0.0.1:9092": "one"}
    # INCONSISTENT_CLUSTER_ID
    assert labels(row("Vote", A, vote, error=104)) == {}
    assert labels(row("Vote", A, vote), listed(A, "other")) == {"10.0.0.1:9092": "other"}


def test_an_endpoint_with_two_ids_has_none() -> None:
    """A proxy, or a port that another cluster took later."""
    found = known([listed(A, "one", B), listed(A, "other", C)])
    assert found.label("10.0.0.1:9092") is None
    assert found.group("10.0.0.2:9092") == "one"
    assert found.group("10.0.0.9:9092") is None


def test_a_cluster_without_an_id_may_be_any_of_the_others() -> None:
    """Another listener of the same brokers, queried by an old client."""
    assert not known([listed(A, "one", A), listed(B, None, B), listed(C, None, C)]).several
    assert known([listed(A, "one", A), listed(B, None, B), listed(C, "other", C)]).group("10.0.0.2:9092") is not None


def test_a_single_cluster_separates_nothing() -> None:
    assert not known([listed(A, "one", A, B)]).several
    assert known([listed(A, "one", A, B)]).group("10.0.0.1:9092") is None
    assert ALONE.group("10.0.0.1:9092") is None


@pytest.mark.parametrize("body", ["", "{", "[]", '{"cluster_id":7}', '{"cluster_id":"","brokers":[{"host":1}]}'])
def test_other_apis_name_no_cluster(body: str) -> None:
    assert labels(row("Metadata", A, response=body)) == {}
    assert labels(row("Vote", A, '{"cluster_id":"' + "x" * 300 + '"}')) == {}


def test_neither_order_nor_merging_matters() -> None:
    rows = [listed(A, None, A, B), listed(B, None, B, C), listed(C, "one"), listed(A, None, A), row("Vote", B, "{}")]
    expected = labels(*rows)
    for some in itertools.permutations(rows):
        halves = [Clusters(), Clusters()]
        for place, one in enumerate(some):
            halves[place % 2].update(pa.RecordBatch.from_pylist([one], schema=SCHEMA))
        halves[0].merge(Clusters.from_state(halves[1].state()))
        assert dict(halves[0].known().labels) == expected


# -- what is kept separate by cluster


def cluster(talk: Talk, name: str | None) -> None:
    if name is not None:
        talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name})


def sequences(*clusters: str | None) -> list[Talk]:
    """An idempotent producer at two brokers, with the same producer id and sequence numbers."""
    talks = []
    for number, (broker, name) in enumerate(zip((A, B), clusters, strict=True)):
        talk = Talk(port=50_000 + number, after=number, broker=broker)
        cluster(talk, name)
        for base in (0, 10):
            produce(talk, records(10, producer=(1000, 0, base)))
        talks.append(talk.ended())
    return talks


def test_the_same_producer_id_in_two_clusters_is_no_repetition(tmp_path: Path) -> None:
    path = tmp_path / "crafted.pcap"
    assert checked(path, sequences("one", "other"), "repeated-sequences").findings == []
    # One cluster is known, the other is not: the two are not compared.
    assert checked(path, [*sequences("one", None), *others()], "repeated-sequences").findings == []
    (found,) = checked(path, sequences("one", "one"), "repeated-sequences").findings
    assert found.values["repeated_records"] == 20
    assert "cluster" not in found.subject
    # Nothing shows that there are two clusters.
    assert len(checked(path, sequences(None, None), "repeated-sequences").findings) == 1


def others() -> list[Talk]:
    """A broker of another cluster."""
    talk = Talk(port=50_009, broker=C)
    cluster(talk, "other")
    return [talk.ended()]


def test_a_finding_names_its_cluster(tmp_path: Path) -> None:
    talks = [*sequences("one", "one"), *others()]
    (found,) = checked(tmp_path / "crafted.pcap", talks, "repeated-sequences").findings
    assert found.subject["cluster"] == "one"
    assert "for orders-0 in cluster one (producer id 1000)" in found.title


def transaction(broker: tuple[str, int], name: str, port: int, after: float, end: bool) -> Talk:
    talk = Talk(port=port, after=after, broker=broker)
    cluster(talk, name)
    asked = {"transactional_id": "ledger", "producer_id": 1, "producer_epoch": 0}
    if end:
        talk.ask("EndTxn", 1, {**asked, "committed": True}, {})
    else:
        talk.ask("AddPartitionsToTxn", 1, {f"v3_and_below_{name}": value for name, value in asked.items()}, {})
    return talk.ended()


@pytest.mark.parametrize(("other", "open_ones"), [("one", 0), ("other", 1)])
def test_another_clusters_commit_ends_no_transaction(tmp_path: Path, other: str, open_ones: int) -> None:
    talks = [transaction(A, "one", 50_001, 0, end=False), transaction(B, other, 50_002, 30, end=True)]
    later = Talk(port=50_003, after=100, broker=A)
    cluster(later, "one")
    found = checked(tmp_path / "crafted.pcap", [*talks, later.ended()], "hanging-transactions").findings
    assert len(found) == open_ones


def test_an_export_agrees_with_its_capture(tmp_path: Path) -> None:

    for name in ("two-clusters.pcap", "rolling-upgrade.pcap"):
        capture = ROOT / "captures" / "faults" / name
        folder = tmp_path / name
        assert kafkasniff("export", capture, "-o", folder).code == 0
        only = ("mixed-broker-versions", "rebalance-storms", "repeated-sequences", "skewed-partitions")
        sources = [run([str(one)], only=only).findings for one in (capture, folder)]
        titles = [[(one.title, one.subject, one.count) for one in each] for each in sources]
        assert titles[0] == titles[1]
        assert bool(titles[0]) == (name == "rolling-upgrade.pcap")


def asked_often(broker: tuple[str, int], name: str, wait: float, port: int) -> Talk:
    talk = Talk(port=port, broker=broker)
    for _ in range(25):
        talk.ask("Metadata", 2, {"topics": []}, {"brokers": [], "topics": [], "cluster_id": name}, wait=wait)
    return talk.ended()


@pytest.mark.parametrize(("other", "count"), [("one", 1), ("other", 0)])
def test_brokers_of_another_cluster_are_not_peers(tmp_path: Path, other: str, count: int) -> None:
    talks = [
        asked_often(A, "one", 0.001, 50_001),
        asked_often(B, "one", 0.001, 50_002),
        asked_often(C, other, 0.2, 50_003),
    ]
    assert len(checked(tmp_path / "crafted.pcap", talks, "slow-broker").findings) == count


def leads(talk: Talk, name: str, broker: tuple[str, int], node: int) -> None:
    brokers = [{"node_id": node, "host": broker[0], "port": broker[1]}]
    partition = {"partition_index": 0, "leader_id": node}
    topics = [{"name": "orders", "partitions": [partition]}]
    talk.ask("Metadata", 2, {"topics": []}, {"brokers": brokers, "topics": topics, "cluster_id": name}, then=1)


@pytest.mark.parametrize(("other", "moved"), [("one", {"2": 1}), ("other", {})])
def test_leaders_move_within_a_cluster(tmp_path: Path, other: str, moved: dict[str, int]) -> None:
    dying = Talk(port=50_001, broker=A)
    leads(dying, "one", A, 1)
    dying.reset()
    refused = [Attempt(after, refused=True, broker=A) for after in (2, 3, 4)]
    later = Talk(port=50_002, after=6, broker=B)
    leads(later, other, B, 2)
    (found,) = checked(tmp_path / "crafted.pcap", [dying, *refused, later.ended()], "broker-gone").findings
    assert found.values["leaders_moved"] == moved
