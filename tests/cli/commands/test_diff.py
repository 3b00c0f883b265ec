"""`kafkasniff diff`: differences known by construction, captures against their exports, and equal sides."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkasniff.analysis.comparison import answer as parts
from kafkasniff.analysis.comparison.family import MIN_EXCHANGES, MIN_SPANS, Thresholds
from kafkasniff.analysis.comparison.latencies import MIN_TAIL
from kafkasniff.analysis.comparison.spans import MAX_SPANS
from kafkasniff.cli.commands.diff import diff_command
from kafkasniff.cli.environment import Exit
from tests.analysis.comparison.traffic import traffic
from tests.analysis.exports import write_export
from tests.analysis.tables import batch_of, exchange
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.conversation import Conversation, interleaved
from tests.craft.write import write_pcap
from tests.test_hostile_strings import EVIL, harmless, packets
from tests.test_hostile_strings import talk as talk_of

CLASSIC = ROOT / "captures" / "java-group-classic.pcap"


def compared(*arguments: object, **options: Any) -> dict[str, Any]:
    result = kafkasniff("diff", "--format", "json", *arguments, **options)
    assert result.code in (Exit.OK, Exit.FINDINGS, Exit.BROKEN), result.err
    (found,) = result.objects
    assert (result.code == Exit.FINDINGS) == any(found["differences"].values())
    return found


def differing(found: dict[str, Any]) -> dict[str, int]:
    return {name: number for name, number in found["differences"].items() if number}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("before") / "out", traffic())


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slower, and with another client."""
    other = batch_of([exchange("Metadata", one, client_id=f"c{one}") for one in range(4)])
    return exported(tmp_path_factory.mktemp("after") / "out", traffic(2, slower=1.5), other)


def exported(folder: Path, *batches: pa.RecordBatch) -> Path:
    """An export of some rows."""
    write_export(folder, exchanges=[exchange()])
    (part,) = folder.rglob("*.parquet")
    with pq.ParquetWriter(part, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return folder


# -- no difference ----------------------------------------------------------------------------------------------------


def test_identical_exports(before: Path) -> None:
    found = compared(before, before)
    assert found["differences"] == dict.fromkeys(parts.SECTIONS, 0)
    text = kafkasniff("diff", before, before)
    assert text.code == Exit.OK
    assert text.lines[-1].startswith("no differences in versions, rates, latency")


@pytest.mark.parametrize("name", ["java-group-consumer", "kraft-2.8", "old-message-formats"])
def test_a_capture_and_its_export(name: str, tmp_path: Path) -> None:
    path = ROOT / "captures" / f"{name}.pcap"
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == Exit.OK
    found = compared(path, tmp_path / "out")
    assert differing(found) == {}
    one, other = ({**found[side], "source": ""} for side in ("before", "after"))
    assert one == other
    for row in (*found["topics"], *found["batching"], *found["sizes"], *found["rates"]):
        for change in (value for value in row.values() if isinstance(value, dict)):
            assert change["before"] == change["after"]


# -- differences ------------------------------------------------------------------------------------------------------


def test_constructed_differences(before: Path, after: Path) -> None:
    found = compared(before, after)
    assert differing(found) == {"versions": 1, "latency": 1, "clients": 4}
    assert [row["client_id"] for row in found["clients"]] == ["c0", "c1", "c2", "c3", "app"]
    assert found["latency"][0]["verdict"] == "slower"
    shown = kafkasniff("diff", before, after, width=160)
    assert shown.lines[4] == "6 differences: 1 in versions, 1 in latency, 4 in clients"
    (line,) = (one.split() for one in shown.lines if one.startswith("  Produce"))
    assert line[:2] == ["Produce", "slower"]
    assert line[-1] == "<0.001"
    assert ["c0", "new", "0", "→", "1"] in [one.split() for one in shown.lines]


def test_thresholds(before: Path, after: Path) -> None:
    assert differing(compared(before, after, "--min-count", "2", "--min-change", "200")) == {"versions": 1}
    assert differing(compared(before, after, "--only", "latency,rates", "--significance", "1e-30")) == {}
    found = compared(before, after, "--only", "clients", "--only", "latency")
    assert list(found["differences"]) == ["latency", "clients"]
    assert (found["versions"], found["min_change"], found["significance"], found["min_count"]) == (None, 0.1, 0.05, 1)


# -- captures, options, output ----------------------------------------------------------------------------------------


def talk(start: int, slow_ns: int) -> Conversation:
    """Sixty consecutive Metadata requests, each answered after about `slow_ns`."""
    made = Conversation(("10.0.0.5", 50_000), ("10.0.0.9", 9092), start_ns=1_795_000_000_000_000_000 + start)
    made.handshake()
    random = Random(start)
    for number in range(60):
        made.send("client", kafka.metadata_request(number, ["orders"]))
        made.wait(round(slow_ns * random.uniform(0.8, 1.2)))
        made.send("broker", kafka.metadata_response(number, "broker", 9092, ["orders"]))
    made.close()
    return made


def test_captures(tmp_path: Path) -> None:
    paths = [
        write_pcap(tmp_path / f"{number}.pcap", talk(number, slow).packets)
        for number, slow in enumerate((1_000_000, 3_000_000))
    ]
    found = compared(*paths)
    (metadata,) = found["latency"]
    assert metadata["verdict"] == "slower"
    assert 2 < metadata["p50"]["after_us"] / metadata["p50"]["before_us"] < 4
    assert compared("-", paths[1], stdin=paths[0].read_bytes())["latency"] == found["latency"]
    assert compared(*paths, "--api", "Fetch")["latency"] == []
    assert compared(*paths, "--port", "1")["before"]["exchanges"] == 0
    text = kafkasniff("diff", *paths)
    assert text.code == Exit.FINDINGS
    shift = re.search(r"Metadata +slower +([\d.]+) → ([\d.]+) ms \(\+(\d+)%\)", text.text)
    assert shift is not None
    one, other, percent = map(float, shift.groups())
    assert percent == pytest.approx(100 * other / one - 100, abs=1)
    narrow = kafkasniff("diff", *paths, width=60).text
    assert re.search(r"Metadata +slower +[\d.]+ → [\d.]+ ms +[\d.]+ → [\d.]+ ms$", narrow, re.M)


def test_two_real_captures() -> None:
    """According to their clients: Java 0.11 and 2.4, with different versions of the protocol."""
    versions = {}
    for name in ("java-0.11", "java-2.4"):
        log = [json.loads(line) for line in (ROOT / "captures" / f"{name}.log.jsonl").read_text().splitlines()]
        versions[name] = {
            api: sorted({one["api_version"] for one in log if one["kind"] == "request" and one["api"] == api})
            for api in ("Produce", "Fetch", "Metadata")
        }
    reported = {
        row["api"]: row for row in compared(*(ROOT / "captures" / f"{name}.pcap" for name in versions))["versions"]
    }
    for api in ("Produce", "Fetch", "Metadata"):
        assert set(versions["java-0.11"][api]) <= set(reported[api]["before"])
        assert set(versions["java-2.4"][api]) <= set(reported[api]["after"])


@pytest.mark.parametrize("width", [60, 160])
def test_output_fits_the_terminal(width: int) -> None:
    result = kafkasniff("diff", "--all", CLASSIC, ROOT / "captures" / "java-errors.pcap", width=width)
    assert max(map(len, result.lines[4:])) <= width
    assert "…" not in result.text
    assert all(line == line.rstrip() for line in result.lines)


def test_omitted_rows_are_counted(before: Path, after: Path) -> None:
    assert "  and 1 more (--top)" in kafkasniff("diff", before, after, "--top", "3").lines
    assert len(compared(before, after, "--top", "3")["clients"]) == 3
    assert len(compared(before, after)["clients"]) == 5


def test_all_of_it(before: Path) -> None:
    shown = kafkasniff("diff", before, before, "--all")
    assert any(line.strip().startswith("Produce  same") for line in shown.lines)
    assert "Latency" not in kafkasniff("diff", before, before).lines


def test_names_from_the_wire_cannot_control_a_terminal(tmp_path: Path) -> None:
    talks = [talk_of(number, evil) for number, evil in enumerate(EVIL.values())]
    path, benign = write_pcap(tmp_path / "evil.pcap", interleaved(talks)), write_pcap(tmp_path / "x.pcap", packets("x"))
    for arguments in (["--all"], ["--all", "--color", "always", "--top", "99"], ["--format", "json"]):
        result = kafkasniff("diff", path, benign, *arguments, stdout_tty=True, width=160)
        assert result.code == Exit.FINDINGS
        harmless(result.text)
        harmless(result.err)
    assert {row["client_id"] for row in json.loads(result.text)["clients"]} == {*EVIL.values(), "x"}


def test_colours_and_encodings(before: Path, after: Path) -> None:
    assert b"\x1b" not in kafkasniff("diff", before, after).out
    assert b"\x1b[1m" in kafkasniff("diff", before, after, "--color", "always").out
    assert kafkasniff("diff", before, after, encoding="ascii").out.isascii()


def test_a_file(before: Path, after: Path, tmp_path: Path) -> None:
    path = tmp_path / "diff.txt"
    result = kafkasniff("diff", before, after, "-o", path, width=60)
    assert (result.code, result.out) == (Exit.FINDINGS, b"")
    assert path.read_text() == kafkasniff("diff", before, after, width=120).text
    assert kafkasniff("diff", before, CLASSIC, "-o", CLASSIC).code == Exit.USAGE


def test_incomplete_exports(before: Path, capture: Path, tmp_path: Path) -> None:
    kafkasniff("export", capture, "-o", tmp_path / "headers", "--no-bodies")
    found = compared(capture, tmp_path / "headers")
    assert differing(found) == {}
    assert found["errors"] is None
    assert "errors, topics, batching, clients, brokers" in found["notes"][0]
    kafkasniff("export", capture, "-o", tmp_path / "none", "--tables", "records")
    assert kafkasniff("diff", before, tmp_path / "none").code == Exit.USAGE


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["{}/missing", "{}/garbage"], Exit.CAPTURE, "missing"),
        (["{}", "{}"], Exit.CAPTURE, "contains neither captures"),
        (["{}/garbage"], Exit.USAGE, "Missing argument"),
        (["{}", "{}", "--api", "Fetch"], Exit.CAPTURE, "contains neither captures"),
        (["-", "-"], Exit.USAGE, "only once"),
        (["{}/garbage", "{}/garbage"], Exit.CAPTURE, "garbage"),
        (["{}/garbage", "{}/garbage", "--only", "latencies"], Exit.USAGE, "the lists are versions, rates"),
        (["{}/garbage", "{}/garbage", "--min-change", "-1"], Exit.USAGE, "--min-change"),
        (["{}/garbage", "{}/garbage", "--significance", "1"], Exit.USAGE, "--significance"),
    ],
)
def test_usage_errors(arguments: list[str], code: Exit, expected: str, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"no capture at all, but text\n" * 9)
    result = kafkasniff("diff", *(one.format(tmp_path) for one in arguments))
    assert result.code == code
    assert expected in result.err
    assert (result.err.count("\n"), result.out) == (1, b"")


def test_truncated_and_damaged_captures(capture: Path, tmp_path: Path) -> None:
    whole, random = capture.read_bytes(), Random(12)
    path = tmp_path / "cut.pcap"
    path.write_bytes(whole[:-7])
    assert compared(path, path)["broken"] is True
    assert kafkasniff("diff", path, path).code == Exit.BROKEN
    for _ in range(5):
        data = bytearray(whole[: random.randrange(200, len(whole))])
        for _ in range(50):
            data[random.randrange(24, len(data))] = random.randrange(256)
        path.write_bytes(data)
        assert kafkasniff("diff", capture, path).code in (Exit.FINDINGS, Exit.OK, Exit.BROKEN)


# -- the page ---------------------------------------------------------------------------------------------------------

HOW_TO = (ROOT / "docs" / "diff.md").read_text()


def test_the_page_has_the_thresholds() -> None:
    for number in (MIN_EXCHANGES, MIN_SPANS, MIN_TAIL, MAX_SPANS):
        assert re.search(rf"\b{number}\b", HOW_TO), number
    default = Thresholds()
    assert (default.min_change, default.significance, default.min_count) == (0.1, 0.05, 1)
    (only,) = (one for one in diff_command.params if one.name == "only")
    assert isinstance(only, click.Option)
    assert f": {', '.join(parts.SECTIONS)} (" in (only.help or "")


def test_json_has_every_key(before: Path) -> None:
    found = compared(before, before)
    assert list(found) == ["broken", *Thresholds.__struct_fields__, *parts.ComparisonAnswer.__struct_fields__]
    assert re.fullmatch(r"2026-11-18T\d\d:\d\d:\d\d\.\d{9}Z", found["before"]["first"])
