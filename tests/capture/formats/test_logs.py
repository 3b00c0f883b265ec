"""Logs, read like captures: request logs of brokers, and what clients log of requests and responses."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats import logs
from kafkasniff.capture.formats.logs import ClientLogPackets, LogPackets, log_of
from tests.choice import examples, one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

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


def converted_log(*pieces: bytes, of: type[logs.LogLines] = LogPackets) -> tuple[bytes, str | None, str | None]:
    """The capture, what could not be read, what is not there."""
    log, found = of(), []
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


def test_timing_joins_a_log_and_a_capture() -> None:
    capture, log = FOLDER / "kafka-4.4.0.pcap", FOLDER / "kafka-4.4.0.request.log.gz"
    found = kafkasniff("timing", capture, "--request-log", log, "-q", "--format", "json").objects[0]
    alone, logged = (kafkasniff("timing", one, "-q", "--format", "json").objects[0] for one in (capture, log))
    assert found["groups"] == alone["groups"]
    assert [row | {"captured": None, "captured_us": None} for row in found["broker_times"]] == [
        row | {"captured": None, "captured_us": None} for row in logged["broker_times"]
    ]
    # What the capture shows of a request includes the broker's own time, which is in whole milliseconds.
    between = [
        row["captured_us"] - row["total_us"] for row in found["broker_times"] if row["captured"] == row["exchanges"]
    ]
    assert len(between) > 10
    assert sum(one > -2000 for one in between) > 0.8 * len(between)
    for arguments in ((capture, "--request-log", capture), (capture, "--request-log", log, "--each")):
        assert kafkasniff("timing", *arguments).code == 2


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


def test_long_lines_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LINE", 1000)
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
    monkeypatch.setattr(logs, "MAX_CONNECTIONS", 2)
    places = [{"connection": f"127.0.0.1:9092-127.0.0.2:{port}-0"} for port in (1, 2, 3)] * 3
    messages, problem, _ = decoded(
        tmp_path, *(line(n, time=f"[2026-11-30 07:00:0{n},000] ", **place) for n, place in enumerate(places))
    )
    assert [one["correlation_id"] for one in messages[::2]] == list(range(9))
    assert problem == ""


@pytest.mark.parametrize("head", [b"", b"\n\r\r\n" + line(), b"\0" + line(), b"Completed request", b"text\n" * 100])
def test_other_files_are_no_logs(head: bytes) -> None:
    assert log_of(head) is None
    assert isinstance(log_of(b"[main] INFO started\n" * 100 + line()), LogPackets)


# Logs of clients, and captures of the same traffic.

CLIENTS = ROOT / "captures" / "client-logs"


def named(file: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Messages by client id, correlation id, API and kind. Clients have several connections that count alike."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    ids: dict[int, Any] = {}
    for one in kafkasniff("decode", file, "--json", "-q").objects:
        if one["type"] in ("request", "response"):
            ids.setdefault(one["exchange"], one.get("client_id"))
            place = (ids[one["exchange"]], one["correlation_id"], one["api"], one["api_version"], one["type"])
            count = next(number for number in range(99) if (*place, number) not in found)
            found[*place, count] = one
    return found


def test_the_log_of_a_java_client_and_a_capture_of_the_same_traffic() -> None:
    captured = named(CLIENTS / "java-debug.pcap")
    logged = named(CLIENTS / "java-debug.client.log.gz")
    assert logged.keys() == captured.keys()
    assert len(logged) > 100
    for place, one in captured.items():
        assert without_records(logged[place]["body"]) == without_records(one["body"]), place
        assert (logged[place].get("latency_ms") is None) == (place[-2] == "request")


def test_the_log_of_librdkafka_and_a_capture_of_the_same_traffic() -> None:
    captured = named(CLIENTS / "librdkafka-debug.pcap")
    logged = named(CLIENTS / "librdkafka-debug.client.log.gz")
    assert logged.keys() <= captured.keys()
    # What it had sent when it ended is not in its log.
    assert len(captured) - len(logged) <= 4
    assert len(logged) > 100
    assert {place: one["size"] for place, one in logged.items()} == {place: captured[place]["size"] for place in logged}


def test_logs_of_several_clients_are_not_mixed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.log.gz", "b.log.gz")]
    for file in files:
        file.write_bytes((CLIENTS / "java-debug.client.log.gz").read_bytes())
    counts = [kafkasniff("decode", *those, "-q").text.count("corr ") for those in (files[:1], files[1:], files)]
    assert counts[0] == counts[1] == counts[2] / 2 == 128


def test_what_logs_of_clients_do_not_show_is_not_judged() -> None:
    found = [kafkasniff("check", CLIENTS / f"{name}-debug.client.log.gz", "-q").text for name in ("java", "librdkafka")]
    assert ["without-authentication" in text for text in found] == [False, True]
    secured = gzip.decompress((CLIENTS / "librdkafka-debug.client.log.gz").read_bytes()).replace(
        b"]: 127", b"]: ssl://127"
    )
    assert "without-authentication" not in kafkasniff("check", "-", "-q", stdin=secured).text


JAVA = gzip.decompress((CLIENTS / "java-debug.client.log.gz").read_bytes()).splitlines(keepends=True)
RDKAFKA = gzip.decompress((CLIENTS / "librdkafka-debug.client.log.gz").read_bytes()).splitlines(keepends=True)


@examples(20)
@given(st.lists(st.integers(0, 9000), max_size=5))
def test_pieces_of_the_log_of_a_client_change_nothing(cuts: list[int]) -> None:
    data = b"".join((*JAVA[:12], *RDKAFKA[:20]))
    places = [0, *sorted(min(one, len(data)) for one in cuts), len(data)]
    pieces = (data[low:high] for low, high in itertools.pairwise(places))
    assert converted_log(*pieces, of=ClientLogPackets) == converted_log(data, of=ClientLogPackets)


@examples(60)
@given(st.sampled_from([*JAVA[:60], *RDKAFKA[:20]]), st.integers(0, 600), st.binary(max_size=4))
def test_damaged_lines_of_clients_cost_themselves(line: bytes, at: int, damage: bytes) -> None:
    good = RDKAFKA[2]
    assert b"Sent ApiVersion" in good
    whole, damaged, _ = converted_log(
        good, line[:at] + damage.replace(b"\n", b"") + line[at + 1 :], good, of=ClientLogPackets
    )
    assert whole.count(b"rdkafka-admin") >= 2
    assert damaged is None or "1 of its lines cannot be read" in damaged


@pytest.mark.parametrize(
    "text",
    [
        "Sending FETCH request with header RequestHeader(apiKey=FETCH, apiVersion=1, clientId=" + "x" * 10**5,
        "Received FETCH response from node 1 for request with header RequestHeader(apiKey=FETCH, apiVersion=17, "
        "clientId=x, correlationId=1): FetchResponseData(" + "responses=[A(" * 10**5,
        "%7|1796062295.306|SEND|" + "x" * 10**5,
        "%7|1796062295.306|SEND|x#producer-1| [thrd:a]: a/1: Sent FetchRequest (v17, 999999999 bytes @ 0, CorrId 1)",
    ],
)
def test_hostile_lines_of_clients_are_bounded(text: str) -> None:
    data = f"[2026-11-30 18:13:18,983] DEBUG [Consumer clientId=x] {text}\n".encode() * 20
    assert len(converted_log(data, of=ClientLogPackets)[0]) < 2 * len(data)
