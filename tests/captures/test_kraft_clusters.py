"""What the recorder of clusters makes of logs and nodes, without any broker."""

import base64

import pytest

from captures.record.broker import RealBroker, directory_id
from captures.record.distribution import SetupError
from captures.record.kraft_clusters import (
    answered_log,
    cluster,
    controllers,
    directory_of,
    last_leader,
    nodes_log,
)

HEADER = "header RequestHeader(apiKey=FETCH, apiVersion=18, clientId=fetcher, correlationId={}, headerVersion=2)"
OLD_HEADER = "header RequestHeader(apiKey=VOTE, apiVersion=0, clientId=raft, correlationId=7)"


def sent(correlation):
    header = HEADER.format(correlation)
    return f"9 [t] DEBUG x - Sending FETCH request with {header} and timeout 30 to node 2: body {correlation}"


def received(correlation):
    return f"9 [t] DEBUG x - Received FETCH response from node 2 for request with {HEADER.format(correlation)}: answer"


def test_only_the_first_body_of_a_kind_is_kept():
    reported = list(nodes_log([sent(1), "something else", sent(2), received(1), received(2)]))
    assert [(one["kind"], one["correlation_id"], one.get("text")) for one in reported] == [
        ("request", 1, "body 1"),
        ("request", 2, None),
        ("response", 1, "answer"),
        ("response", 2, None),
    ]


def test_headers_of_releases_that_did_not_log_their_version():
    (vote,) = nodes_log([f"5 Sending VOTE request with {OLD_HEADER} and timeout 2000 to node 1: VoteRequestData()"])
    assert (vote["api"], vote["api_version"], vote["client_id"], vote["correlation_id"]) == ("Vote", 0, "raft", 7)


def test_unanswered_requests_are_skipped():
    reported = list(answered_log([sent(1), received(1), sent(2), sent(3), received(3), sent(3)]))
    assert [(one["kind"], one["correlation_id"]) for one in reported] == [
        ("request", 1),
        ("response", 1),
        ("request", 3),
        ("response", 3),
    ]
    assert list(answered_log([])) == []


def with_logs(tmp_path, *logs):
    nodes = cluster(tmp_path, dict.fromkeys(range(1, len(logs) + 1), ("controller",)))
    for node, log in zip(nodes, logs, strict=True):
        node.directory.mkdir()
        node.log_file.write_text(log)
    return nodes


def test_the_leader_is_the_node_whose_last_transition_says_so(tmp_path):
    was = "INFO Completed transition to Leader(epoch=1)\nINFO Completed transition to ResignedState(epoch=1)\n"
    is_now = (
        "INFO Completed transition to CandidateState(epoch=2)\nINFO Completed transition to Leader(epoch=2)\nmore\n"
    )
    nodes = with_logs(tmp_path, was, is_now, "nothing yet")
    assert last_leader(nodes) is nodes[1]
    with pytest.raises(SetupError):
        last_leader([nodes[0], nodes[2]])


def test_nodes_of_a_cluster_know_the_same_controllers(tmp_path):
    nodes = cluster(tmp_path, {1: ("broker", "controller"), 2: ("controller",), 3: ("broker",)})
    assert [sorted(node.choose_ports()) for node in nodes] == [
        ["CLIENT", "CONTROLLER", "INTERNAL"],
        ["CONTROLLER"],
        ["CLIENT", "INTERNAL"],
    ]
    ports = [port for node in nodes for port in node.ports.values()]
    assert len(set(ports)) == len(ports)
    assert controllers(nodes[:2]) == ",".join(f"127.0.0.1:{node.port('CONTROLLER')}" for node in nodes[:2])


@pytest.mark.parametrize("node_id", [1, 3, 99999])
def test_ids_of_log_folders_are_uuids_as_kafka_prints_them(node_id):
    text = directory_id(node_id)
    assert len(base64.urlsafe_b64decode(text + "==")) == 16
    assert text != directory_id(node_id - 1)


def test_the_id_of_a_log_folder_is_read_from_where_kafka_writes_it(tmp_path):
    node = RealBroker(tmp_path)
    node.data_directory.mkdir()
    properties = node.data_directory / "meta.properties"
    properties.write_text("#\nnode.id=1\ndirectory.id=bG9nIGZvbGRlciAgICAgMQ\nversion=1\n")
    assert directory_of(node) == "bG9nIGZvbGRlciAgICAgMQ"
    properties.write_text("node.id=1\nversion=1\n")
    with pytest.raises(SetupError):
        directory_of(node)
