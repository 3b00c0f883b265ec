"""What all commands that read captures have in common: inputs, outputs, colours, memory, filters, names."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkasniff.analysis import question_names
from kafkasniff.cli.environment import Exit, Interrupted
from kafkasniff.cli.running import pipeline
from tests.choice import fewer, one_in
from tests.cli.console import Result, kafkasniff
from tests.conftest import ROOT
from tests.craft.conversation import interleaved
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes, write_pcap
from tests.test_hostile_strings import EVIL, harmless, packets, talk

COMMANDS: dict[str, tuple[str, ...]] = {
    "decode": ("decode",),
    "stats": ("stats",),
    "check": ("check",),
    "security": ("security",),
    "audit": ("audit", "--target", "4.0"),
    "timing": ("timing", "--by", "broker,address,client"),
    "analyze": ("analyze", "talkers"),
    "diff": ("diff", "--all", str(ROOT / "captures" / "java-group-classic.pcap")),
}
OTHERS = [name for name in COMMANDS if name != "decode"]
CAPTURES = ROOT / "captures"
SASL = CAPTURES / "java-sasl.pcap"
NAMES = (CAPTURES / "librdkafka-1.4.pcap", CAPTURES / "librdkafka-acks0.pcap")

LONG = [name for name in COMMANDS if name not in ("analyze", "check")]


def run(name: str, *arguments: object, **options: Any) -> Result:
    return kafkasniff(*COMMANDS[name], *arguments, **options)


def test_questions_and_their_parameters_as_json() -> None:
    reported = kafkasniff("analyze", "--list", "--format", "json").objects
    assert [one["question"] for one in reported] == list(question_names())
    assert all(parameter["help"] for one in reported for parameter in one["parameters"])


@pytest.mark.parametrize("name", one_in(4, list(COMMANDS)))
def test_standard_input(name: str, capture: Path) -> None:
    found, expected = run(name, "-q", "-", stdin=capture.read_bytes()), run(name, "-q", capture)
    assert (found.code, found.err) == (expected.code, "")
    assert " ".join(found.text.replace(str(capture), "-").split()) == " ".join(
        expected.text.replace(str(capture), "-").split()
    )
    assert found.out


@pytest.mark.parametrize("name", one_in(3, LONG))
def test_a_file_as_output(name: str, capture: Path, tmp_path: Path) -> None:
    """It is private to its owner, has no colours and the default width, and replaces a file that exists."""
    path = tmp_path / "out"
    path.write_text("old")
    expected = run(name, "-q", capture)
    result = run(name, "-q", capture, "-o", path, width=60, stdout_tty=True)
    assert (result.code, result.out, result.err) == (expected.code, b"", "")
    assert path.read_text().split() == expected.text.split()
    assert (path.read_bytes() == expected.out) == (name != "security"), "its lines are shorter in files"
    fresh = tmp_path / "fresh"
    assert run(name, "-q", "--json", capture, "-o", fresh).code == expected.code
    assert fresh.stat().st_mode & 0o777 == 0o600
    assert fresh.read_bytes() == run(name, "-q", "--json", capture).out


@pytest.mark.parametrize("name", one_in(6, LONG, 4))
def test_colours_and_encodings(name: str, capture: Path) -> None:
    for options, world, coloured in (
        ((), {}, False),
        ((), {"stdout_tty": True}, True),
        ((), {"stdout_tty": True, "environ": {"NO_COLOR": "1"}}, False),
        (("--color", "always"), {"environ": {"NO_COLOR": "1"}}, True),
        (("--color", "never"), {"stdout_tty": True}, False),
    ):
        assert (b"\x1b[" in run(name, capture, *options, **world).out) is coloured, (options, world)
    assert run(name, capture, encoding="ascii").out.isascii()


@pytest.mark.parametrize("name", one_in(5, list(COMMANDS), 1))
def test_a_capture_that_is_cut(name: str, capture: Path, tmp_path: Path) -> None:
    """Everything read counts. The exit code for findings takes precedence."""
    path, whole = tmp_path / "cut.pcap", capture.read_bytes()
    path.write_bytes(whole[:-7])
    result = run(name, "-q", "--json", path)
    assert result.code == (Exit.FINDINGS if name == "diff" else Exit.BROKEN)
    assert result.out
    if name not in ("decode", "analyze", "audit"):
        assert result.objects[0]["broken"] is True
    random = Random(11)
    for _ in range(fewer(1, 3)):
        data = bytearray(whole[: random.randrange(200, len(whole))])
        for _ in range(50):
            data[random.randrange(24, len(data))] = random.randrange(256)
        path.write_bytes(data)
        assert run(name, path).code in (Exit.OK, Exit.FINDINGS, Exit.BROKEN, Exit.CAPTURE)


EMPTY = {
    "decode": "",
    "stats": "0 exchanges: 0 requests of 0 B, 0 responses of 0 B; 0 with errors, 0 unanswered",
    "check": "no Kafka traffic in {path}",
    "security": "no findings in {path}",
    "audit": "No client was seen.",
    "timing": "0 exchanges, 0 of them timed: 0 ns in total",
    "analyze": "",
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_capture(name: str, tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "empty.pcap", [])
    result = run(name, path)
    assert result.code == Exit.NOTHING
    assert result.err.splitlines()[-1] == "kafkasniff: no Kafka messages: the captures have no packets"
    assert EMPTY[name].format(path=path) in [*result.lines, ""]
    assert bool(result.out) == bool(EMPTY[name])


@pytest.mark.parametrize("name", one_in(4, OTHERS, 2))
def test_names_of_addresses(name: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 the-machine\n")
    assert "the-machine" not in run(name, "-q", SASL).text
    assert "the-machine" in run(name, "-q", "--hosts", hosts, SASL).text
    if name in ("security", "timing", "audit"):
        assert run(name, "-q", "--json", "--hosts", hosts, SASL).out == run(name, "-q", "--json", SASL).out


def test_racks_of_clients_and_brokers_without_their_own(tmp_path: Path) -> None:
    """Clients of the capture name no rack, and its broker has none."""
    command = ("analyze", "racks", "-q", "--json", CAPTURES / "librdkafka-codecs.pcap")
    bare = kafkasniff(*command).objects
    assert {(row["client_rack"], row["broker_rack"], row["cross_zone"]) for row in bare} == {(None, None, None)}
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{bare[0]['broker']} broker rack=eu-1a\n127.0.0.0/8 rack=eu-1b\n")
    named = kafkasniff(*command, "--hosts", hosts).objects
    assert {(row["client_rack"], row["broker_rack"], row["cross_zone"]) for row in named} == {("eu-1b", "eu-1a", True)}


SELECTIONS = [
    ("java-codecs", 'record.key startswith "key-"', {"Produce": 5, "Fetch": 1}),
    ("java-codecs", 'exists(record.header["trace"]) and partition == 0', {"Produce": 5, "Fetch": 1}),
    ("java-codecs", 'topic endswith "lz4" and api in ("Produce", "Fetch")', {"Produce": 1, "Fetch": 2}),
    ("java-connect", 'record.value.$.state == "UNASSIGNED"', {"Produce": 6, "Fetch": 10}),
    ("librdkafka-schemas", 'record.header["origin"] matches "^sh.p$"', {"Produce": 2, "Fetch": 1}),
    (
        "java-group-classic",
        'group contains "vents" and api matches "^Offset"',
        {"OffsetCommit": 2, "OffsetFetch": 4, "OffsetDelete": 1},
    ),
]


@pytest.mark.parametrize(("capture_name", "expression", "apis"), one_in(6, SELECTIONS, 2))
def test_every_command_selects_the_same_exchanges(
    capture_name: str, expression: str, apis: dict[str, int], tmp_path: Path
) -> None:
    """Topics that requests name by id, records that were produced and those that were fetched."""
    capture = CAPTURES / f"{capture_name}.pcap"

    def objects(*command: object) -> list[dict[str, Any]]:
        return kafkasniff(*command, "-q", "--json", "-Y", expression, capture).objects

    requests = [one["api"] for one in objects("decode") if one["type"] == "request"]
    assert Counter(requests) == apis
    (overview,) = objects("stats")
    assert {one["api"]: one["exchanges"] for one in overview["apis"]} == apis
    (timing,) = objects("timing", "--by", "api")
    assert {one["keys"]["api"]: one["exchanges"] for one in timing["groups"]} == apis
    assert sum(one["requests"] for one in objects("analyze", "talkers")) == sum(apis.values())
    folder = tmp_path / "tables"
    assert kafkasniff("export", "-q", "--records", "-Y", expression, capture, "-o", folder).code == Exit.OK
    (exported,) = kafkasniff("stats", "-q", "--json", folder).objects
    assert {one["api"]: one["exchanges"] for one in exported["apis"]} == apis


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    talks = [talk(number, text) for number, text in enumerate(EVIL.values())]
    return write_pcap(tmp_path_factory.mktemp("evil") / "evil.pcap", interleaved(talks))


@pytest.mark.parametrize("name", one_in(6, OTHERS))
def test_names_from_the_wire_cannot_control_a_terminal(name: str, evil: Path, tmp_path: Path) -> None:
    """`tests/test_hostile_strings.py` has the lines of `decode`."""
    sources = (write_pcap(tmp_path / "x.pcap", packets("x")), evil) if name == "diff" else (evil,)
    command = (*COMMANDS[name][:2], "--top", "99") if name == "diff" else COMMANDS[name]
    for options in ((), ("--color", "always"), ("--format", "json")):
        result = kafkasniff(*command, *sources, *options, stdout_tty=True, width=160)
        assert result.code in (Exit.OK, Exit.FINDINGS)
        harmless(result.text)
        harmless(result.err)
    found = [json.loads(line) for line in result.lines]
    shown = json.dumps(found, ensure_ascii=False)
    if name != "security":
        assert all(json.dumps(text, ensure_ascii=False) in shown for text in EVIL.values())


@pytest.mark.parametrize(("name", "signum"), one_in(3, [("stats", 2), ("check", 15), ("report", 2)], 1))
def test_an_interrupt_shows_what_was_read(
    name: str, signum: int, capture: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kafkasniff.tables.exports.staging import CountedRows

    feed = CountedRows.feed

    def interrupted(rows: CountedRows, batch: Any) -> None:
        feed(rows, batch)
        raise Interrupted(signum)

    if name == "report":
        pytest.importorskip("vl_convert")
        monkeypatch.setattr("kafkasniff.report.charts.svg_of", lambda spec, label, width: "")
    monkeypatch.setattr(CountedRows, "feed", interrupted)
    result = kafkasniff(name, capture, "-o", tmp_path / "out")
    assert result.code == 128 + signum
    assert result.err.endswith("kafkasniff: interrupted: the result covers only what was read\n")
    assert (tmp_path / "out").stat().st_size > 0


@pytest.mark.parametrize("name", ["security", "audit", "timing"])
def test_the_answer_does_not_depend_on_batches(name: str, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "audit":
        monkeypatch.setattr("kafkasniff.cli.running.capture_usage.MAX_ENDED", 1)
    whole = run(name, capture, NAMES[1])
    monkeypatch.setattr(pipeline, "FIRST_ROWS", 3)
    monkeypatch.setattr(pipeline, "MAX_ROWS", 40)
    assert run(name, capture, NAMES[1]).out == whole.out


def test_a_clock_that_jumps(tmp_path: Path) -> None:
    data = bytearray(pcap_bytes(mixed(), nanoseconds=True))
    data[24:28] = b"\xff\xff\xff\x7f"
    path = tmp_path / "clock.pcap"
    path.write_bytes(data)
    (answer,) = run("stats", "--json", path).objects
    assert answer["first"] < answer["last"] < "2027"
