"""Log segments and request logs of brokers, read like captures."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats import broker_files as request_log
from kafkasniff.capture.formats.broker_files import PIECE, LogPackets, SegmentPackets, is_request_log, is_segment
from kafkasniff.cli.environment import Exit
from tests.choice import examples, one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.kafka import records_craft as craft

METADATA = ROOT / "captures" / "segments" / "__cluster_metadata-0"
SEGMENT = METADATA / "00000000000000000000.log"


def batches(*offsets: int, size: int = 3) -> list[bytes]:
    """Batches of that many records, from these offsets on."""
    records = [craft.Record(delta, 0, b"key", b"v" * 40) for delta in range(size)]
    return [craft.batch_of(records, base_offset=offset) for offset in offsets]


def converted_segment(*pieces: bytes, path: str = "orders-3/00000000000000000000.log") -> tuple[bytes, str | None]:
    """The capture, and why it ends early."""
    segment = SegmentPackets(path)
    found = []
    for piece in (*pieces, None):
        if piece is None:
            segment.finish()
        else:
            segment.push(piece)
        while data := segment.pull():
            found.append(data)
    return b"".join(found), segment.failure


def offsets_of(path: Path, *data: bytes) -> tuple[list[tuple[str, int, int]], str]:
    """Topic, partition and offset of the records, and the problems."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(data))
    rows = kafkasniff("sql", "SELECT topic, partition, r.offset FROM records r", path, "-q", "--format", "json").objects
    return [(row["topic"], row["partition"], row["offset"]) for row in rows], kafkasniff("decode", path).text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders-3" / "00000000000000000000.log"


def test_the_metadata_log_of_a_real_broker() -> None:
    """Copied from a broker of 4.4.0; its records begin with the leader, and register the broker."""
    found = kafkasniff("decode", SEGMENT, "-q", "--json").objects
    fetched = [one for one in found if one["type"] == "response"]
    parts = [one["body"]["responses"][0]["partitions"][0] for one in fetched]
    records = [record for part in parts for batch in part["records"]["batches"] for record in batch["records"]]
    assert [record["offset"] for record in records] == list(range(29))
    assert all(batch["crc_ok"] for part in parts for batch in part["records"]["batches"])
    text = kafkasniff("decode", SEGMENT, "-q", "-vv").text
    assert "LEADER_CHANGE" in text
    assert "RegisterBrokerRecord" in text
    snapshot = kafkasniff("decode", METADATA / "00000000000000000000-0000000000.checkpoint", "-q").text
    assert "SNAPSHOT_HEADER" in snapshot
    assert kafkasniff("decode", METADATA, "-q").text.count("←") == len(fetched) + snapshot.count("←")


def test_the_folder_names_the_partition(file: Path) -> None:
    rows, text = offsets_of(file, *batches(7, 10))
    assert rows == [("orders", 3, offset) for offset in range(7, 13)]
    assert "orders-3 3 records" in text
    selected = kafkasniff("decode", file, "-q", "--filter", "record.offset == 11", "--json").objects
    assert len(selected) == 2


@examples(20)
@given(st.lists(st.integers(0, 700), max_size=5), st.integers(0, 3))
def test_pieces_of_a_segment_change_nothing(cuts: list[int], zeros: int) -> None:
    data = b"".join(batches(0, 3)) + bytes(40) + b"\xff" * 30 + b"".join(batches(6)) + bytes(zeros)
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[low:high] for low, high in itertools.pairwise(places)]
    assert converted_segment(*pieces) == converted_segment(data)


def test_zeros_of_a_segment_that_is_preallocated(file: Path) -> None:
    rows, text = offsets_of(file, *batches(0), bytes(3 * PIECE + 5))
    assert len(rows) == 3
    assert "capture-cut" not in text


def test_a_cut_batch_is_a_problem(file: Path) -> None:
    rows, text = offsets_of(file, *batches(0), batches(3)[0][:-1])
    assert len(rows) == 3
    assert "its last batch is incomplete" in text


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"\xff" * 100, id="bytes"),
        pytest.param(b"\xff" * 2 * PIECE, id="more-than-a-piece"),
        pytest.param(batches(50)[0][:80], id="a-part-of-a-batch"),
        pytest.param(batches(50)[0][:8] + b"\x05\x00\x00\x00" + batches(50)[0][12:], id="a-length-beyond-the-end"),
    ],
)
def test_reading_continues_after_a_damaged_place(damage: bytes, file: Path) -> None:
    rows, text = offsets_of(file, *batches(0), damage, *batches(100, 103))
    assert {offset for _, _, offset in rows} >= {0, 1, 2, *range(100, 106)}
    assert f"{len(damage)} bytes in it do not form batches" in text


def test_hostile_bytes_give_no_more_than_they_are() -> None:
    random = Random(7)
    heads = [batches(number)[0][:27] for number in range(40)]
    for data in (b"\0\2" * 40_000, b"".join(random.choices(heads, k=3000)), random.randbytes(100_000)):
        found, _ = converted_segment(batches(0)[0] + data)
        assert len(found) < 2 * len(data) + 4000


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(27), id="zeros-of-an-index"),
        pytest.param(b"\n\r\r\n" + bytes(23), id="pcapng"),
        pytest.param(int(1.79e12).to_bytes(8) + (20).to_bytes(4) + bytes(15), id="an-entry-of-a-time-index"),
        pytest.param(batches(0)[0][:26], id="too-short"),
    ],
)
def test_other_files_are_no_segments(head: bytes) -> None:
    assert not is_segment(head)
    assert is_segment(batches(0)[0])


def test_an_index_is_refused_with_the_name_of_what_has_the_records(file: Path) -> None:
    file.parent.mkdir()
    file.with_suffix(".index").write_bytes(bytes(40))
    result = kafkasniff("decode", file.with_suffix(".index"))
    assert result.code == Exit.CAPTURE
    assert result.err.endswith("is not a capture (neither pcap nor pcapng); its records are in the .log file\n")


# Request logs of brokers: those of four releases and captures of the same traffic, cut, damaged and hostile ones.

FOLDER = ROOT / "captures" / "request-logs"
LATER = "[2026-11-30 07:00:07,250] "
OMITTED = "a request log has no records, log-ins and round trips"
RELEASES = ("2.8.2", "3.4.1", "3.9.2", "4.4.0")


def line(number: int = 1, *, time: str = "[2026-11-30 07:00:00,250] ", **changes: Any) -> bytes:
    """A line about Heartbeat 0."""
    said = {
        "requestHeader": {"requestApiKey": 12, "requestApiVersion": 0, "correlationId": number, "clientId": "c"},
        "request": {"groupId": "g", "generationId": 1, "memberId": "m"},
        "response": {"errorCode": 0},
        "connection": "127.0.0.1:9092-127.0.0.2:40000-7",
        "totalTimeMs": 5.5,
    }
    return f"{time}DEBUG Completed request:{json.dumps(said | changes)} (kafka.request.logger)\n".encode()


def converted_log(*pieces: bytes) -> tuple[bytes, str | None, str | None]:
    """The capture, what could not be read, what is not there."""
    log, found = LogPackets(), []
    for piece in (*pieces, None):
        if piece is None:
            log.finish()
        else:
            log.push(piece)
        while data := log.pull():
            found.append(data)
    return b"".join(found), log.damaged, log.omitted


def decoded(tmp_path: Path, *lines: bytes) -> tuple[list[dict[str, Any]], str, int]:
    """Messages, problems and exit code."""
    file = tmp_path / "kafka-request.log"
    file.write_bytes(b"".join(lines))
    result = kafkasniff("decode", file, "--json", "-q")
    kinds = [one for one in result.objects if one["type"] == "problem"]
    messages = [one for one in result.objects if one["type"] != "problem"]
    (problem,) = (one["detail"].removeprefix(f"{file}: ") for one in kinds)
    assert problem.endswith(OMITTED) or "no time" in problem
    return messages, problem.removesuffix(OMITTED), result.code


def without_records(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if not name.startswith("_")}
        return {name: None if name == "records" else without_records(inner) for name, inner in kept.items()}
    return [without_records(element) for element in value] if isinstance(value, list) else value


def exchanges(file: Path) -> dict[tuple[Any, ...], tuple[Any, float | None]]:
    """Body and latency (in ms) by client port, correlation id and kind."""
    found = {}
    for one in kafkasniff("decode", file, "--json", "-q").objects:
        if one["type"] in ("request", "response"):
            header = (one["api"], one["api_version"], one["correlation_id"])
            place = (one["client"].rpartition(":")[2], *header, one["type"])
            assert place not in found
            found[place] = without_records(one["body"]), one.get("latency_ms")
    return found


@pytest.mark.parametrize("release", one_in(4, RELEASES))
def test_a_log_and_a_capture_of_the_same_traffic(release: str) -> None:
    captured = exchanges(FOLDER / f"kafka-{release}.pcap")
    logged = exchanges(FOLDER / f"kafka-{release}.request.log.gz")
    assert captured.keys() == logged.keys()
    assert len(logged) > 100
    for place, (body, _) in captured.items():
        if body != logged[place][0]:
            # The broker has not read it: it does not know the version.
            assert (place[1], place[-1]) == ("ApiVersions", "request")
            assert set(logged[place][0].values()) <= {"", None, -1}
    slower = [place for place, (_, latency) in logged.items() if latency and latency > (captured[place][1] or 0) + 5]
    # Its time ends when the network thread notices that the response was sent.
    assert len(slower) < len(logged) / 4
    checks = [
        kafkasniff("check", FOLDER / f"kafka-{release}.{end}", "--format", "json") for end in ("pcap", "request.log.gz")
    ]
    names = [{one["detector"] for one in json.loads(check.text)["findings"]} for check in checks]
    assert names[0] - names[1] <= {"late-answers"}
    assert names[1] <= names[0]


def test_all_commands_read_logs(tmp_path: Path) -> None:
    file = FOLDER / "kafka-4.4.0.request.log.gz"
    plain = gzip.decompress(file.read_bytes())
    assert (
        kafkasniff("decode", "-", "-q", stdin=plain).out == kafkasniff("decode", "-", "-q", stdin=file.read_bytes()).out
    )
    half = plain.index(b"\n", len(plain) // 2) + 1
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "kafka-request.log.2026-11-30-06").write_bytes(plain[:half])
    (tmp_path / "logs" / "kafka-request.log").write_bytes(plain[half:])
    rotated = kafkasniff("decode", tmp_path / "logs", "--json", "-q").objects
    bodies = [one["body"] for one in kafkasniff("decode", file, "--json", "-q").objects if "body" in one]
    assert [one["body"] for one in rotated if "body" in one] == bodies
    (row,) = kafkasniff("sql", "SELECT count(*) AS n FROM exchanges", file, "-q", "--format", "json").objects
    assert row["n"] == len(bodies) // 2
    assert "without differences" not in kafkasniff("diff", file, FOLDER / "kafka-4.4.0.pcap").err
    for command in ("stats", "timing", "audit"):
        assert kafkasniff(command, file, "-q").code == 0


@examples(30)
@given(st.lists(st.integers(0, 1200), max_size=6))
def test_pieces_of_a_log_change_nothing(cuts: list[int]) -> None:
    data = line(1) + b"another line\n" + line(2, request={}) + b"\xff\0\n" + line(3)[:-1]
    places = [0, *sorted(cuts), len(data)]
    assert converted_log(*(data[low:high] for low, high in itertools.pairwise(places))) == converted_log(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(line()[:200] + b"\n", "", id="cut"),
        pytest.param(line(requestHeader={}), "requestApiKey", id="no-header"),
        pytest.param(line(connection="x" * 10**6), "connection", id="no-connection"),
        pytest.param(line(connection="1:1-" * 10**5), "connection", id="hostile-connection"),
        pytest.param(line(connection="localhost:9092-127.0.0.1:4-0"), "localhost", id="a-name"),
        pytest.param(line(connection="127.0.0.1:9092-127.0.0.1:70000-0"), "70000", id="port"),
        pytest.param(line(request={"groupId": "g"}), "fields without a value: 2", id="no-fields"),
        pytest.param(line(response={"errorCode": 1 << 15}), "", id="number"),
        pytest.param(line(response={"errorCode": "0"}), "error_code", id="type"),
        pytest.param(line(totalTimeMs="x"), "totalTimeMs", id="time"),
        pytest.param(line().replace(b'"g"', b"[" * 10**5), "", id="deep"),
        pytest.param(line().replace(b'"g"', b'"\xff"'), "", id="not-utf8"),
    ],
)
def test_a_line_that_cannot_be_read_costs_itself(damage: bytes, reason: str, tmp_path: Path) -> None:
    messages, problem, code = decoded(tmp_path, line(1), damage, line(2))
    assert [one["correlation_id"] for one in messages] == [1, 1, 2, 2]
    assert "1 of its lines cannot be read, the first is line 2: " in problem
    assert reason in problem
    assert "nothing after" not in problem
    assert code == 4


@pytest.mark.parametrize("header", [{"requestApiKey": 9999}, {"requestApiVersion": 99}])
def test_unknown_versions_are_a_problem(header: dict[str, int], tmp_path: Path) -> None:
    known = {"requestApiKey": 12, "requestApiVersion": 0, "correlationId": 3, "clientId": None}
    assert "is unknown" in decoded(tmp_path, line(1), line(3, requestHeader=known | header))[1]


def test_long_lines_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MAX_LINE", 1000)
    data = line(1) + line(clientId="x" * 5000) + line(2)
    found = converted_log(data)
    assert found == converted_log(*(data[at : at + 300] for at in range(0, len(data), 300)))
    assert found[1] is not None
    assert "the first is line 2: it has more than" in found[1]


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        ("[2026-11-30 07:00:00,250] ", "2026-11-30T07:00:00.250000000Z"),
        ("2026-11-30T09:00:00.250+02:00 ", "2026-11-30T07:00:00.250000000Z"),
        ("2026-11-30T07:00:00.250001Z stdout F [2026-11-30 01:00:00,250] ", "2026-11-30T07:00:00.250001000Z"),
    ],
)
def test_times(time: str, shown: str, tmp_path: Path) -> None:
    messages, problem, code = decoded(tmp_path, line(time=time))
    assert messages[1]["time"] == shown
    assert messages[1]["latency_ms"] == 5.5
    assert (problem, code) == ("", 0)
    assert "2 of its lines have no time" in decoded(tmp_path, line(time=""), line(time="[2026-13-77 00:00:00,1] "))[1]


def test_ports_that_are_used_again(tmp_path: Path) -> None:
    other = {"connection": "127.0.0.1:9092-127.0.0.2:40000-8"}
    messages, problem, _ = decoded(
        tmp_path, line(1), line(2), line(1, time=LATER, **other), line(2, time=LATER, **other)
    )
    first, second = messages[0]["connection"], messages[-1]["connection"]
    assert [one["connection"] for one in messages] == [first] * 4 + [second] * 4
    assert first != second
    assert problem == ""
    ipv6 = {"connection": "[0:0:0:0:0:0:0:1%lo]:9092-0:0:0:0:0:0:0:1:40000-8-1"}
    assert {one["client"] for one in decoded(tmp_path, line(1, **ipv6))[0]} == {"[::1]:40000"}


def test_log_ins_are_not_in_the_log(tmp_path: Path) -> None:
    file = tmp_path / "kafka-request.log"
    for protocol, found in (("SASL_SSL", False), ("PLAINTEXT", True)):
        file.write_bytes(b"".join(line(number, securityProtocol=protocol) for number in range(3)))
        assert ["without-authentication"] * found == re.findall(r"([\w-]+):(?= \d{4}-)", kafkasniff("check", file).text)
        assert len(kafkasniff("decode", file, "-q").lines) == 8


def test_connections_that_were_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(request_log, "MAX_CONNECTIONS", 2)
    places = [{"connection": f"127.0.0.1:9092-127.0.0.2:{port}-0"} for port in (1, 2, 3)] * 3
    messages, problem, _ = decoded(
        tmp_path,
        *(line(n, time=f"[2026-11-30 07:00:0{n},000] ", **place) for n, place in enumerate(places)),
    )
    assert [one["correlation_id"] for one in messages[::2]] == list(range(9))
    assert problem == ""


def test_requests_without_a_response(tmp_path: Path) -> None:
    messages, _, _ = decoded(tmp_path, line(1, response=""), line(2))
    assert [(one["type"], one["correlation_id"]) for one in messages] == [
        ("request", 1),
        ("request", 2),
        ("response", 2),
    ]


@pytest.mark.parametrize("head", [b"", b"\n\r\r\n" + line(), b"\0" + line(), b"Completed request", b"text\n" * 100])
def test_other_files_are_no_logs(head: bytes) -> None:
    assert not is_request_log(head)
    assert is_request_log(b"[main] INFO started\n" * 100 + line())
