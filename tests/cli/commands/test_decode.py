from __future__ import annotations

import io
import ipaddress
import json
import stat
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit, Interrupted
from tests.cli.console import environment, kafkasniff
from tests.craft.samples import mixed, producer
from tests.craft.write import pcap_bytes, pcapng_bytes

MESSAGES = 46


def messages(result: Any) -> list[dict[str, Any]]:
    return [item for item in result.objects if item["type"] in {"request", "response"}]


def test_text_is_the_default(capture: Path) -> None:
    result = kafkasniff("decode", capture)
    assert result.code == 0
    assert result.lines[0].endswith(" UTC")
    assert sum("→" in line or "←" in line for line in result.lines) >= MESSAGES
    assert "Produce v9" in result.text
    assert "\x1b" not in result.text
    assert result.err.startswith("kafkasniff: ")
    assert f"{MESSAGES} messages" in result.err
    assert "3 connections (2 Kafka, 1 not Kafka)" in result.err
    assert result.err.count("\n") == 1


def test_json_lines(capture: Path) -> None:
    result = kafkasniff("decode", "--format", "json", capture)
    found = messages(result)
    assert len(found) == MESSAGES
    produce = next(item for item in found if item["api"] == "Produce" and item["type"] == "request")
    records = produce["body"]["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"]
    # See tests/craft/samples.py.
    assert records[0]["key"] == "key-0"
    assert records[0]["headers"] == [{"key": "h", "value": {"base64": "AP8="}}]
    pairs: dict[int, list[str]] = {}
    for item in found:
        pairs.setdefault(item["exchange"], []).append(item["type"])
    assert sorted(map(tuple, pairs.values())).count(("request", "response")) >= 20


def test_quiet_prints_nothing(capture: Path) -> None:
    assert kafkasniff("decode", "-q", capture).err == ""


@pytest.mark.parametrize(
    ("option", "wanted"),
    [("auto", {"base64": "AP8="}), ("base64", {"base64": "AP8="}), ("hex", {"hex": "00ff"})],
)
def test_forms_of_bytes(capture: Path, option: str, wanted: dict[str, str]) -> None:
    result = kafkasniff("decode", "--format", "json", "--bytes", option, "--api", "Produce", "-c", 1, capture)
    (line,) = messages(result)
    record = line["body"]["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"][0]
    assert record["headers"][0]["value"] == wanted
    assert (record["key"] == "key-0") is (option == "auto")


def test_records_can_be_omitted(capture: Path) -> None:
    def batches(*options: str) -> list[dict[str, Any]]:
        (line,) = messages(kafkasniff("decode", "--format", "json", *options, "--api", "0", "-c", 1, capture))
        found: list[dict[str, Any]] = line["body"]["topic_data"][0]["partition_data"][0]["records"]["batches"]
        return found

    assert "records" in batches()[0]
    assert "records" in batches("--records")[0]
    (without,) = batches("--no-records")
    assert "records" not in without
    assert without["record_count"] == 3
    assert {key: value for key, value in batches()[0].items() if key != "records"} == without


def test_verbosity_adds_bodies_and_then_records(capture: Path) -> None:
    plain, body, records = (
        kafkasniff("decode", *options, "--api", "Produce", "-c", 1, capture).text for options in ([], ["-v"], ["-vv"])
    )
    assert "topic_data: [1]" not in plain
    assert "topic_data: [1]" in body
    assert 'key: "key-0"' not in body
    assert 'key: "key-0"' in records
    assert kafkasniff("decode", "-v", "--records", "--api", "Produce", "-c", 1, capture).text == records


def test_filters(capture: Path) -> None:
    everything = messages(kafkasniff("decode", "--format", "json", capture))

    def chosen(*options: object) -> list[dict[str, Any]]:
        result = kafkasniff("decode", "--format", "json", *options, capture)
        assert result.code == 0
        assert f"{len(messages(result))} shown" in result.err
        return messages(result)

    def those(test: Any) -> list[dict[str, Any]]:
        wanted = {item["exchange"] for item in everything if test(item)}
        return [item for item in everything if item["exchange"] in wanted]

    def sides(items: list[dict[str, Any]]) -> list[tuple[int, str]]:
        return sorted((item["exchange"], item["type"]) for item in items)

    assert sides(chosen("--api", "metadata")) == sides(those(lambda item: item["api"] == "Metadata"))
    assert sides(chosen("--api", "0,1")) == sides(those(lambda item: item["api_key"] in {0, 1}))
    assert sides(chosen("--errors")) == sides(those(lambda item: item.get("errors")))
    assert len(chosen("--errors")) == 2
    assert sides(chosen("--host", "10.0.0.6")) == sides(those(lambda item: item["client"].startswith("10.0.0.6:")))
    assert sides(chosen("--correlation-id", 3)) == sides(those(lambda item: item["correlation_id"] == 3))
    number = everything[0]["connection"]
    assert sides(chosen("--connection", number)) == sides(those(lambda item: item["connection"] == number))
    assert sides(chosen("--exchange", 4, "--exchange", 5)) == sides(those(lambda item: item["exchange"] in {4, 5}))
    slow = chosen("--slower-than", "0.5ms")
    assert sides(slow) == sides(those(lambda item: (item.get("latency_ms") or 0) > 0.5))
    assert sides(chosen("--topic", "ör*")) == sides(those(lambda item: "öre" in json.dumps(item, ensure_ascii=False)))
    assert chosen("--client-id", "nobody") == []
    assert sides(chosen("--client-id", "craft*")) == sides(those(lambda item: item["client_id"] == "crafted"))
    middle = everything[20]["time"]
    before, after = chosen("--until", middle), chosen("--since", middle)
    assert sides(before) == sides(those(lambda item: item["type"] == "request" and item["time"] <= middle))
    assert {item["exchange"] for item in before} | {item["exchange"] for item in after} == {
        item["exchange"] for item in everything
    }
    assert sides(chosen("--since", "+0s")) == sides(everything)
    assert chosen("--since", "+1h".replace("h", "0m")) == []


def test_undecided_exchanges_are_shown_whole(capture: Path) -> None:
    lines = messages(kafkasniff("decode", "--format", "json", "--errors", capture))
    assert [line["type"] for line in lines] == ["request", "response"]
    assert lines[0]["exchange"] == lines[1]["exchange"]
    assert lines[1]["errors"][0]["name"] == "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize("count", [1, 2, 7, MESSAGES, MESSAGES + 5])
def test_count_stops_after_that_many_messages(capture: Path, count: int) -> None:
    everything = messages(kafkasniff("decode", "--format", "json", capture))
    assert messages(kafkasniff("decode", "--format", "json", "-c", count, capture)) == everything[:count]


def test_output_files_are_private_and_complete(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    result = kafkasniff("decode", "--format", "json", "-o", path, capture)
    assert result.code == 0
    assert result.out == b""
    assert path.read_bytes() == kafkasniff("decode", "--format", "json", capture).out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_output_that_cannot_be_written_is_code_5(capture: Path, tmp_path: Path) -> None:
    result = kafkasniff("decode", "-o", tmp_path / "missing" / "out", capture)
    assert result.code == Exit.UNAVAILABLE
    assert "No such file" in result.err


def test_a_capture_is_not_overwritten_by_its_own_output(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(mixed()))
    before = path.read_bytes()
    result = kafkasniff("decode", "-o", tmp_path / "." / "a.pcap", path)
    assert result.code == Exit.USAGE
    assert path.read_bytes() == before


def test_an_output_is_not_touched_when_the_capture_cannot_be_opened(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious")
    assert kafkasniff("decode", "-o", out, tmp_path / "missing.pcap").code == Exit.CAPTURE
    assert out.read_text() == "precious"


def test_an_unfinished_file_is_reported_as_incomplete(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise Interrupted(2)

    monkeypatch.setattr("kafkasniff.sinks.jsonl.JsonSink.write", interrupted)
    path = tmp_path / "out"
    result = kafkasniff("decode", "--format", "json", "-o", path, capture)
    assert result.code == 130
    assert f"{path} is incomplete" in result.err


@pytest.mark.parametrize("content", [None, b"", b"no capture at all, but text\n" * 9])
def test_unreadable_captures_are_code_3(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    if content is not None:
        path.write_bytes(content)
    result = kafkasniff("decode", path)
    assert result.code == Exit.CAPTURE
    assert str(path) in result.err
    assert result.err.count("\n") == 1
    assert result.out == b""


def test_a_truncated_capture_is_code_4_and_its_messages_are_shown(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture.read_bytes()[:-7])
    result = kafkasniff("decode", "--format", "json", path)
    assert result.code == Exit.BROKEN
    assert len(messages(result)) >= MESSAGES - 1
    assert [item["kind"] for item in result.objects if item["type"] == "problem"].count("capture-cut") == 1


def test_problems_in_streams_do_not_change_the_code(tmp_path: Path) -> None:
    packets = [packet for number, packet in enumerate(mixed()) if number not in {20, 21, 30}]
    path = tmp_path / "lossy.pcap"
    path.write_bytes(pcap_bytes(packets))
    result = kafkasniff("decode", "--format", "json", path)
    assert result.code == 0
    assert any(item["type"] == "problem" for item in result.objects)


def test_stdin_is_a_capture_too(capture: Path) -> None:
    assert kafkasniff("decode", "-", stdin=capture.read_bytes()).text == kafkasniff("decode", capture).text
    result = kafkasniff("decode", "-", stdin_tty=True)
    assert result.code == Exit.USAGE
    assert "terminal" in result.err


def test_several_captures_are_distinguished(tmp_path: Path) -> None:
    packets = mixed()
    paths = []
    for number, part in enumerate((packets[:60], packets[60:])):
        paths.append(tmp_path / f"{number}.pcap")
        paths[-1].write_bytes(pcap_bytes(part, nanoseconds=True))
    found = messages(kafkasniff("decode", "--format", "json", *paths))
    assert len(found) == MESSAGES
    assert {item["capture"] for item in found} == {str(path) for path in paths}
    shown = kafkasniff("decode", *paths).lines
    assert [line for line in shown if line.startswith("capture ")] == [f"capture {path}" for path in paths]


def test_ports(capture: Path) -> None:
    assert len(messages(kafkasniff("decode", "--format", "json", "--port", 9092, capture))) == MESSAGES
    result = kafkasniff("decode", "--format", "json", "--port", 80, capture)
    assert messages(result) == []


@pytest.mark.parametrize(
    ("options", "environ", "tty", "coloured"),
    [
        ([], {}, True, True),
        ([], {}, False, False),
        ([], {"NO_COLOR": "1"}, True, False),
        ([], {"NO_COLOR": ""}, True, True),
        ([], {"TERM": "dumb"}, True, False),
        (["--color", "always"], {"NO_COLOR": "1"}, False, True),
        (["--color", "never"], {}, True, False),
    ],
)
def test_colours(capture: Path, options: list[str], environ: dict[str, str], tty: bool, coloured: bool) -> None:
    result = kafkasniff("decode", *options, capture, environ=environ, stdout_tty=tty)
    assert ("\x1b[" in result.text) is coloured


def test_a_file_gets_no_terminal_colours(capture: Path, tmp_path: Path) -> None:
    kafkasniff("decode", "-o", tmp_path / "out", capture, stdout_tty=True)
    assert "\x1b" not in (tmp_path / "out").read_text()


def test_progress_is_shown_on_terminals_and_erased(capture: Path) -> None:
    ticks = iter(range(10_000))
    options = {"stderr_tty": True, "clock": lambda: float(next(ticks))}
    shown = kafkasniff("decode", capture, **options).err
    assert "%" in shown
    assert "\r\x1b[Kkafkasniff: " in shown
    for quiet in (["-q"], []):
        extra = {} if quiet else {"stdout_tty": True}
        assert "%" not in kafkasniff("decode", *quiet, capture, **{**options, **extra}).err


def test_secrets_stay_hidden_unless_asked_for(tmp_path: Path) -> None:
    from tests.craft import kafka_bytes as kafka
    from tests.craft.conversation import Conversation

    talk = Conversation()
    talk.handshake()
    token = b"\0alice\0alice-secret"
    request = kafka.request(36, 0, 1, kafka.int32(len(token)) + token)
    answer = kafka.response(1, kafka.int16(0) + kafka.string(None) + kafka.int32(0))
    talk.exchange(request, answer)
    talk.close()
    path = tmp_path / "sasl.pcap"
    path.write_bytes(pcap_bytes(talk.packets))
    for options in (["--format", "json"], ["-vv"], ["-vv", "--format", "json"], []):
        assert b"alice" not in kafkasniff("decode", *options, path).out
    assert b"alice-secret" in kafkasniff("decode", "--format", "json", "--show-secrets", path).out
    (line, _) = messages(kafkasniff("decode", "--format", "json", path))
    assert line["body"]["auth_bytes"] == {"redacted": len(token)}


def test_a_stream_with_a_limited_encoding(capture: Path) -> None:
    world = environment(encoding="ascii")
    from kafkasniff.cli.main import run

    assert run(["decode", str(capture)], world) == 0
    assert isinstance(world.stdout, io.BytesIO)
    assert "10.0.0.5:51334 > 10.0.0.9:9092" in world.stdout.getvalue().decode("ascii")


def test_name_records_name_addresses(tmp_path: Path) -> None:
    """Text shows an address by its name record in the capture (pcapng, section 4.5); JSON never does."""
    packets = producer().packets
    address = packets[0].dst
    name = ipaddress.ip_address(address).packed + b"broker-one\0"
    record = struct.pack("<HH", 1, len(name)) + name + bytes(-len(name) % 4) + bytes(4)
    block = struct.pack("<II", 4, 12 + len(record)) + record + struct.pack("<I", 12 + len(record))
    data = pcapng_bytes(packets)
    head = 0
    for _ in range(2):  # the section's header and the interface
        head += struct.unpack_from("<I", data, head + 4)[0]
    capture = tmp_path / "named.pcapng"
    capture.write_bytes(data[:head] + block + data[head:])
    port = packets[0].dport
    assert f"→ broker-one:{port}" in kafkasniff("decode", capture).text
    assert kafkasniff("decode", "--format", "json", capture).objects[0]["broker"] == f"{address}:{port}"


@pytest.mark.parametrize(("size", "words"), [("64M", "128M is the minimum"), ("much", "is not a size")])
def test_an_impossible_memory_budget(size: str, words: str, capture: Path) -> None:
    result = kafkasniff("decode", "--memory", size, capture)
    assert result.code == 2
    assert words in result.err


def test_a_sufficient_memory_budget_changes_no_line(capture: Path) -> None:
    assert kafkasniff("decode", "--memory", "128M", capture).text == kafkasniff("decode", capture).text
