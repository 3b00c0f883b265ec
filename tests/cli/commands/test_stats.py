"""`kafkasniff stats`. The expected screens are in `stats/`: `WIDTH.txt`, and the object in `answer.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkasniff.analysis.overview import answer as parts
from kafkasniff.cli.environment import Exit, Interrupted
from kafkasniff.tables.exports.counted import CountedRows
from kafkasniff.tcp.packets import PacketBatch
from tests.analysis.exports import write_export
from tests.analysis.tables import exchange, partition
from tests.choice import DEEP, in_turn, one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes, write_pcap, write_rotated
from tests.test_hostile_strings import EVIL, harmless, packets
from tests.tls.endpoints import Pair, kafka_talk, packets_of

RECORDS = 'request.topic_data.partition_data.records.batches.records.key == "key-0"'
FOLDER = Path(__file__).parents[1] / "stats"
SHIPPED = "captures/java-group-classic.pcap"


def answered(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("stats", "--format", "json", *arguments, **options)
    assert result.code in (Exit.OK, Exit.BROKEN), result.err
    (found,) = result.objects
    return found


def by(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


# -- contents ---------------------------------------------------------------------------------------------------------


def test_the_crafted_capture(capture: Path) -> None:
    """See `samples.mixed`: 16 requests of a producer, one unanswered as requested; 9 of a consumer, the last one
    unanswered; one connection that is not Kafka.
    """
    answer = answered(capture)
    assert answer["exchanges"]["requests"] == 16 + 9 - 1
    assert answer["connections"]["connections"] == 3
    assert (answer["connections"]["kafka"], answer["connections"]["not_kafka"]) == (2, 1)
    assert by(answer["brokers"], "address", "port", "connections") == [("10.0.0.9", 9092, 2)]
    assert sorted(by(answer["clients"], "address", "software_name")) == [("10.0.0.5", "craft"), ("10.0.0.6", None)]
    apis = {one["api"]: one for one in answer["apis"]}
    assert (apis["Produce"]["versions"], apis["Produce"]["exchanges"], apis["Produce"]["unanswered"]) == ([3, 9], 12, 0)
    assert (apis["Fetch"]["exchanges"], apis["Fetch"]["unanswered"]) == (8, 1)
    (orders,) = answer["topics"]
    # Batches of 3 to 8 records, five of 2, one of 1; fetches of 1, 40, 3, 200 and 2.
    assert orders["produced"]["records"] == sum(range(3, 9)) + 5 * 2 + 1
    assert orders["fetched"]["records"] == 1 + 40 + 3 + 200 + 2
    # A key of 5 to 7 bytes, a value of up to 700, and a header of 3.
    assert 700 + 5 + 3 <= orders["record_bytes_max"] <= 700 + 7 + 3
    (error,) = answer["errors"]
    assert (error["code"], error["count"], error["first_api"], error["first_topic"]) == (6, 1, "Produce", "orders")
    assert "leader" in error["meaning"]
    assert [one["kind"] for one in answer["problems"]] == ["request-unanswered"]


def golden(name: str, *arguments: object, **options: Any) -> None:
    result = kafkasniff("stats", *arguments, **options)
    assert result.code == Exit.OK
    assert result.text == (FOLDER / name).read_text()


def test_a_real_capture_matches_the_expected_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    golden("100.txt", SHIPPED, "--top", "8", width=100)
    golden("80.txt", SHIPPED, "--top", "4", width=80)
    golden("answer.json", SHIPPED, "--top", "4", "--format", "json")


def test_a_capture_and_its_export_agree(capture: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert kafkasniff("export", capture, "-o", folder).code == Exit.OK
    one, other = answered(capture), answered(folder)
    assert one.pop("security")["identities"]
    assert other.pop("security") is None  # exports lack what it needs
    assert one.pop("sources") == [str(capture)]
    assert other.pop("sources") == [str(folder)]
    assert one == other
    texts = [kafkasniff("stats", source).text for source in (capture, folder)]
    whole, exported = (text.partition("\n") for text in texts)
    assert [whole[0], exported[0]] == [str(capture), str(folder)]
    before, _, after = whole[2].partition("\nSecurity\n")
    assert before + after[after.index("\nFindings\n") :] == exported[2]


SASL = ROOT / "captures" / "java-sasl.pcap"


@pytest.mark.parametrize("name", ["java-sasl.pcap", "old-raw-sasl.pcap", "tls/tls12-kafka-python.pcapng"])
def test_security_is_that_of_the_command(name: str) -> None:
    path = ROOT / "captures" / name
    (whole,) = kafkasniff("security", "-q", "--format", "json", path).objects
    found = answered(path)["security"]
    assert found["identities"] == whole["identities"]
    assert found["findings"] == [{key: one[key] for key in found["findings"][0]} for one in whole["findings"]]
    assert found["more"] == {"identities": 0, "findings": 0}
    cut = answered(path, "--top", 1)["security"]
    for key in ("identities", "findings"):
        assert len(cut[key]) + cut["more"][key] == len(whole[key])


def test_security_of_selected_exchanges() -> None:
    """Connections with selected exchanges are shown whole: their authentication came before."""
    text = kafkasniff("stats", "-q", "--api", "Produce", SASL, width=120).text
    (rows,) = re.findall("(?s)\nSecurity\n(.*?)\n\n", text)
    assert {tuple(line.split()[2:5]) for line in rows.splitlines()[1:] if "bob" in line} == {
        ("bob", "SCRAM-SHA-256", "succeeded"),
        ("bob", "SCRAM-SHA-512", "succeeded"),
    }
    found = answered(SASL, "--since", "+0s", "--until", "+1s")["security"]
    assert 0 < len(found["identities"]) < len(answered(SASL)["security"]["identities"])


def test_captures_and_exports_together(capture: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    kafkasniff("export", ROOT / SHIPPED, "-o", folder)
    together, alone, exported = answered(capture, folder), answered(capture), answered(folder)
    for name in ("exchanges", "connections"):
        assert together[name] == {key: value + exported[name][key] for key, value in alone[name].items()}
    assert len(together["clients"]) == len(alone["clients"]) + len(exported["clients"])


def test_standard_input(capture: Path) -> None:
    answer = answered("-", stdin=capture.read_bytes())
    assert answer.pop("sources") == ["-"]
    assert answer == {name: value for name, value in answered(capture).items() if name != "sources"}
    assert kafkasniff("stats", "-", stdin_tty=True).code == Exit.USAGE


def test_filters(capture: Path) -> None:
    answer = answered(capture, "--api", "Fetch")
    assert [one["api"] for one in answer["apis"]] == ["Fetch"]
    assert answer["connections"]["connections"] == 1
    assert answer["topics"][0]["produced"]["records"] == 0
    assert answered(capture, "--errors")["exchanges"]["exchanges"] == 1
    answer = answered(ROOT / "captures" / "java-group-consumer.pcap", "--topic", "events")
    assert {one["topic"] for one in answer["topics"]} <= {"events"}
    # These filters need decoded records.
    assert answered(capture, "--filter", RECORDS)["exchanges"]["exchanges"] > 0
    refused = kafkasniff("stats", capture, "--filter", RECORDS, "--no-records")
    assert (refused.code, "--no-records" in refused.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("options", [["--api", "Fetch,Metadata"], ["--topic", "events"], ["--client-id", "group-*"]])
def test_filters_match_an_export_with_the_same_filters(options: list[str], tmp_path: Path) -> None:
    path = ROOT / "captures" / "java-group-consumer.pcap"
    assert kafkasniff("export", path, "-o", tmp_path / "out", *options).code == Exit.OK
    one, other = answered(path, *options), answered(tmp_path / "out")
    for name in ("sources", "security"):
        del one[name], other[name]
    assert one == other
    assert 0 < one["exchanges"]["exchanges"] < answered(path)["exchanges"]["exchanges"]


def test_several_captures_are_one_timeline(capture: Path, tmp_path: Path) -> None:
    files = write_rotated(tmp_path, mixed())
    together, alone = answered(*files), answered(capture)
    del together["sources"], alone["sources"]
    # Packets are numbered per capture.
    del together["problems"][0]["first_packet"], alone["problems"][0]["first_packet"]
    assert together == alone


def test_names_for_topic_ids(tmp_path: Path) -> None:
    talk = Conversation(("10.0.0.7", 50_001), ("10.0.0.9", 9092))
    talk.handshake()
    topic = bytes(range(16))
    batch = kafka.record_batch([kafka.record(0, b"k", b"v")], 0)
    talk.exchange(kafka.fetch_request_by_id(1, [(topic, [0])]), kafka.fetch_response_by_id(1, [(topic, 0, batch)]))
    path, names = write_pcap(tmp_path / "x.pcap", talk.packets), tmp_path / "names.txt"
    names.write_text("AAECAwQFBgcICQoLDA0ODw orders\n")
    assert by(answered(path)["topics"], "topic") == [("AAECAwQFBgcICQoLDA0ODw",)]
    (orders,) = answered(path, "--topic-ids", names)["topics"]
    assert (orders["topic"], orders["fetched"]["records"], orders["record_bytes_max"]) == ("orders", 1, 2)


def test_a_key_log(tmp_path: Path) -> None:
    made = Pair().talk(kafka_talk(5))
    path, keys = write_pcap(tmp_path / "tls.pcap", packets_of(made.flights)), tmp_path / "keys.log"
    keys.write_bytes(made.key_log)
    assert answered(path, "--keylog", keys)["exchanges"]["requests"] == len(kafka_talk(5)) // 2
    assert answered(path)["exchanges"]["requests"] == 0
    assert by(answered(path)["problems"], "kind") == [("tls-not-decrypted",)]


def test_selected_ports_only(capture: Path) -> None:
    assert answered(capture, "--port", 9092)["connections"]["connections"] == 2
    assert answered(capture, "--port", 1)["exchanges"]["exchanges"] == 0


def test_without_records(capture: Path) -> None:
    (orders,) = answered(capture, "--no-records")["topics"]
    assert orders["record_bytes_max"] is None
    assert orders["produced"]["records"] == 44
    assert "record p50" not in kafkasniff("stats", capture, "--no-records").text
    assert kafkasniff("stats", capture, "--no-records").err == ""


def test_an_incomplete_export(capture: Path, tmp_path: Path) -> None:
    kafkasniff("export", capture, "-o", tmp_path / "few", "--tables", "exchanges")
    answer = answered(tmp_path / "few")
    assert (answer["connections"], answer["problems"]) == (None, None)
    # Three of the lists, the decoded share, and two detectors that need a missing table.
    assert len(answer["notes"]) == 6
    reported = kafkasniff("stats", tmp_path / "few")
    assert reported.err.count("\n") == 6
    assert "connections" not in reported.lines[2]
    assert kafkasniff("stats", "-q", tmp_path / "few").err == ""
    kafkasniff("export", capture, "-o", tmp_path / "headers", "--no-bodies")
    answer = answered(tmp_path / "headers")
    assert (answer["errors"], answer["topics"], answer["groups"]) == ([], [], [])
    assert answer["exchanges"]["requests"] == 24
    kafkasniff("export", capture, "-o", tmp_path / "hashes", "--hash-payload")
    assert answered(tmp_path / "hashes")["topics"][0]["record_bytes_max"] is None
    kafkasniff("export", capture, "-o", tmp_path / "none", "--tables", "records")
    assert kafkasniff("stats", tmp_path / "none").code == Exit.USAGE


def test_codes_that_only_bodies_contain(tmp_path: Path) -> None:
    rows = [exchange("CreateTopics", error_code=36, error_count=3, partitions=[partition(error_code=None)])]
    shown = kafkasniff("stats", write_export(tmp_path / "out", exchanges=rows))
    assert "codes in bodies" in shown.text
    assert "TOPIC_ALREADY_EXISTS" in shown.text


# -- the screen -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "name"), in_turn([60, 80, 100, 120, 160], ["java-errors", "kraft-three-brokers", "librdkafka-codecs"], 3)
)
def test_output_fits_the_terminal(name: str, width: int) -> None:
    result = kafkasniff("stats", ROOT / "captures" / f"{name}.pcap", width=width)
    tables = [line for line in result.lines if line.startswith("  ")]
    assert max(map(len, result.lines[1:])) <= width
    # No digit is lost.
    assert "…" not in "".join(tables)
    assert all(line == line.rstrip() for line in result.lines)


def test_omitted_rows_are_counted(capture: Path) -> None:
    shown = kafkasniff("stats", capture, "--top", "1")
    assert "  and 3 more (--top)" in shown.lines
    whole, short = answered(capture), answered(capture, "--top", "1")
    assert short["findings"] == whole["findings"][:1]
    assert short["more"] == {
        "brokers": 0, "clients": 1, "apis": 3, "topics": 0, "groups": 0, "errors": 0, "problems": 0,
        "findings": len(whole["findings"]) - 1,
    }  # fmt: skip
    assert kafkasniff("stats", capture, "--top", "0").code == Exit.USAGE


def test_colours(capture: Path) -> None:
    assert b"\x1b" not in kafkasniff("stats", capture).out
    assert b"\x1b[1m" in kafkasniff("stats", capture, "--color", "always").out
    assert b"\x1b[1m" in kafkasniff("stats", capture, stdout_tty=True).out
    assert b"\x1b" not in kafkasniff("stats", capture, stdout_tty=True, environ={"NO_COLOR": "1"}).out


@pytest.mark.parametrize("evil", one_in(6, list(EVIL.values())))
def test_names_from_the_wire_cannot_control_a_terminal(evil: str, tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "evil.pcap", packets(evil))
    for arguments in ([], ["--color", "always"], ["--format", "json"]):
        result = kafkasniff("stats", path, *arguments, stdout_tty=True, width=160)
        assert result.code == Exit.OK
        harmless(result.text)
        harmless(result.err)
    assert json.loads(result.text)["clients"][0]["client_id"] == evil


def test_limited_encodings(capture: Path) -> None:
    assert kafkasniff("stats", capture, encoding="ascii").out.isascii()


def test_a_file(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "stats.txt"
    result = kafkasniff("stats", capture, "-o", path, width=60)
    assert (result.code, result.out) == (Exit.OK, b"")
    assert path.read_text() == kafkasniff("stats", capture, width=120).text
    assert path.stat().st_mode & 0o777 == 0o600
    refused = kafkasniff("stats", capture, "-o", capture)
    assert refused.code == Exit.USAGE


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], Exit.USAGE, "CAPTURE|DIR"),
        (["{}/missing"], Exit.CAPTURE, "missing"),
        (["{}"], Exit.CAPTURE, "contains neither captures"),
        (["{}", "--api", "Fetch"], Exit.CAPTURE, "contains neither captures"),
        (["{}/garbage"], Exit.CAPTURE, "garbage"),
        (["{}/garbage", "--filter", "api =="], Exit.USAGE, "--filter"),
        (["{}/garbage", "--api", "Fetsch"], Exit.USAGE, "Fetsch"),
        (["{}/garbage", "--keylog", "{}/missing"], Exit.USAGE, "missing"),
        (["{}/garbage", "-o", "/no/such/folder/x"], Exit.UNAVAILABLE, "cannot write"),
    ],
)
def test_usage_errors(arguments: list[str], code: Exit, expected: str, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"no capture at all, but text\n" * 9)
    result = kafkasniff("stats", *(one.format(tmp_path) for one in arguments))
    assert result.code == code
    assert expected in result.err
    assert (result.err.count("\n"), result.out) == (1, b"")


def test_truncated_and_damaged_captures(capture: Path, tmp_path: Path) -> None:
    whole, random = capture.read_bytes(), Random(11)
    path = tmp_path / "cut.pcap"
    for end in (len(whole) - 7, len(whole) // 2, 40):
        path.write_bytes(whole[:end])
        result = kafkasniff("stats", path)
        assert result.code == Exit.BROKEN
        found = answered(path)
        assert found["broken"] is True
        assert found["exchanges"]["exchanges"] <= 25
    assert "capture-cut" in result.text
    for form in ("text", "json") * (8 if DEEP else 2):
        data = bytearray(whole)
        for _ in range(50):
            data[random.randrange(24, len(data))] = random.randrange(256)
        path.write_bytes(data)
        assert kafkasniff("stats", path, "--format", form).code in (Exit.OK, Exit.BROKEN)


def test_an_empty_capture(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "empty.pcap", [])
    answer = answered(path)
    assert (answer["first"], answer["duration_us"], answer["apis"]) == (None, None, [])
    assert kafkasniff("stats", path).lines[1].startswith("0 exchanges: 0 requests")


def test_a_clock_that_jumps(tmp_path: Path) -> None:
    data = bytearray(pcap_bytes(mixed(), nanoseconds=True))
    data[24:28] = b"\xff\xff\xff\x7f"
    path = tmp_path / "clock.pcap"
    path.write_bytes(data)
    answer = answered(path)
    assert answer["first"] < answer["last"] < "2027"
    assert kafkasniff("stats", path).code == Exit.OK


@pytest.mark.parametrize(("signum", "code"), [(2, Exit.SIGINT), (15, Exit.SIGTERM)])
def test_an_interrupt_shows_what_was_read(
    capture: Path, monkeypatch: pytest.MonkeyPatch, signum: int, code: Exit
) -> None:
    feed = CountedRows.feed

    def interrupted(rows: CountedRows, batch: PacketBatch) -> None:
        feed(rows, batch)
        raise Interrupted(signum)

    monkeypatch.setattr(CountedRows, "feed", interrupted)
    result = kafkasniff("stats", capture, "--format", "json")
    assert (result.code, "interrupted" in result.err) == (code, True)
    (answer,) = result.objects
    assert answer["exchanges"]["requests"] == 24
    assert answer["broken"] is False


# -- the keys ---------------------------------------------------------------------------------------------------------


def test_json_has_every_key() -> None:
    answer = answered(ROOT / SHIPPED)
    assert list(answer)[2:] == [*parts.OverviewAnswer.__struct_fields__, "findings", "security"]
    assert re.fullmatch(r"2026-11-21T07:10:\d\d\.\d{9}Z", answer["first"])
    assert re.fullmatch(r"2026-11-21T07:10:\d\d\.\d{9}Z", answer["groups"][0]["first"])
    assert re.fullmatch(r"2026-11-21T07:10:\d\d\.\d{9}Z", answer["errors"][0]["first"])


# -- memory


def test_a_memory_budget(capture: Path) -> None:
    refused = kafkasniff("stats", "--memory", "127M", capture)
    assert refused.code == Exit.USAGE
    assert "128M is the minimum" in refused.err
    assert kafkasniff("stats", "--memory", "128M", capture).text == kafkasniff("stats", capture).text
