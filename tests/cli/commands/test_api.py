"""`kafkasniff api`, run as a command line with injected streams."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.main import run
from kafkasniff.kafka.apis import coverage
from kafkasniff.kafka.apis.dissectors import api_keys

PAIRS = len(coverage.defined_pairs())


def command(*arguments: str, width: int = 120) -> tuple[int, str, str]:
    out, err = io.BytesIO(), io.StringIO()
    environment = Environment(stdin=io.BytesIO(), stdout=out, stderr=err, width=width)
    code = run(["api", *arguments], environment)
    return code, out.getvalue().decode(), err.getvalue()


def text(*arguments: str, width: int = 120) -> str:
    code, out, err = command(*arguments, width=width)
    assert (code, err) == (Exit.OK, "")
    assert all(len(line) <= width for line in out.splitlines())
    return out


def values(*arguments: str) -> Any:
    code, out, err = command(*arguments, "--format", "json")
    assert (code, err) == (Exit.OK, "")
    return json.loads(out)


def words(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_list() -> None:
    rows = words(text())
    assert ["18", "ApiVersions", "0-5", "3+", "0.10.0"] in [row[:5] for row in rows]
    assert ["4", "LeaderAndIsr", "0-7", "4+", "0.8.0", "until", "4.0"] in [row[:7] for row in rows]
    assert len(rows) == 1 + len(api_keys())
    listed = values()
    assert [entry["api_key"] for entry in listed] == list(api_keys())
    assert listed[17]["flexible_since"] is None


def test_one_api() -> None:
    for name in ("ElectLeaders", "43", "elect_leaders", "ElectPreferredLeaders"):
        out = text(name)
        assert out.startswith("ElectLeaders  key 43\n")
    rows = words(text("ElectLeaders"))
    assert ["topic_partitions", "[]?", "0-2"] in rows
    assert ["election_type", "int8", "1-2", "enum", "election_type"] in rows
    assert "0 PREFERRED, 1 UNCLEAN" in text("43")
    assert "first released  0 in 2.2, 1-2 in 2.4" in text("43")
    entry = values("43")
    assert entry["request"][1]["fields"][1] == {"name": "partitions", "type": "[]int32", "versions": "0-2"}
    assert entry["headers"]["2"] == {"request": 2, "response": 1}
    assert "null in 1-13" in text("Metadata")


def test_one_version() -> None:
    rows = words(text("Fetch", "12"))
    assert ["topic", "string", "topic_name"] in rows
    assert not any(row[:1] == ["topic_id"] for row in rows)
    assert "first release 2.7, flexible" in text("Fetch", "12")
    entry = values("ApiVersions", "3")
    assert (entry["request_header"], entry["response_header"]) == (2, 0)
    assert [field["name"] for field in entry["request"]] == ["client_software_name", "client_software_version"]
    assert entry["response"][3]["tag"] == 0
    assert "(never stable)" in text("ShareFetch", "0")
    assert "no fields" in text("ApiVersions", "0")


def test_structures() -> None:
    out = text("ConfigRecord")
    assert ["value", "string?", "0", "secret", "by", "its", "name"] in words(out)
    assert values("config_record", "0")["fields"][0]["enum"] == "config_resource_type"
    assert "kind" not in values("RequestHeader", "1")
    assert values("RequestHeader")["kind"] == "header"


def test_program() -> None:
    out = text("Heartbeat", "4", "--program", width=200)
    assert "# Heartbeat request, version 4: 5 ops" in out
    assert "# Heartbeat response, version 4: 3 ops" in out
    assert ["2", "generation_id", "int32", "least=4"] in words(out)
    assert text("Heartbeat", "4", "--code", width=200) == out  # its name from when it showed compiled Python
    assert values("Heartbeat", "4", "--program")[0]["ops"][1]["name"] == "group_id"


def test_release() -> None:
    rows = words(text("--release", "3.9.1"))
    assert rows[0] == ["key", "API", "versions", "in", "3.9"]
    assert ["1", "Fetch", "0-17"] in rows
    assert ["78", "ShareFetch", "0", "version", "0", "needs", "an", "opt-in"] in rows
    assert words(text("Fetch", "--release", "4.0"))[1:] == [["1", "Fetch", "4-17"]]
    entry = values("--release", "0.8.0")
    assert entry["release"] == "0.8.0"
    assert [api["max_version"] for api in entry["apis"][:2]] == [0, 0]
    assert ["93", "StreamsGroupTopologyDescriptionUpdate", "0"] in words(text("--release", "4.4"))
    assert words(text("BrokerHeartbeat", "--release", "4.3"))[1:] == [["63", "BrokerHeartbeat", "0-2"]]


def test_versions_of_the_newest_releases() -> None:
    assert "5 in 4.3" in text("DescribeLogDirs")
    assert "4 in 3.9, 5 in 4.4" in text("ApiVersions")
    assert "first release 4.4, flexible" in text("TxnOffsetCommit", "6")
    assert values("ApiVersions", "5")["first_release"] == "4.4"
    # Defined, but never released.
    assert "4 in 3.9, 5 in no release" in text("BrokerRegistration")
    assert "\nin no release, flexible\n" in text("BrokerRegistration", "5")
    assert values("BrokerRegistration")["first_releases"]["5"] is None


PROVEN = """\
Produce 8 vectors 4.4.0
Produce 9 captures 4.4.0 a.pcap b.pcap
Vote 2 vectors 4.4.0
data ConfigRecord 0 vectors 4.4.0
"""


def test_coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proven.txt").write_text(PROVEN)
    monkeypatch.setattr(coverage, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(
        coverage, "read_data", lambda name: (name, list(enumerate((tmp_path / name).read_text().splitlines(), 1)))
    )
    entry = values("--coverage")
    assert (entry["pairs_defined"], entry["pairs_proven"]) == (PAIRS, 3)
    assert entry["pairs_by_release"][-1] == {
        "since": "all",
        "defined": PAIRS,
        "proven": 3,
        "by_vectors": 2,
        "by_captures": 1,
    }
    assert {"since": "4.4", "defined": 7, "proven": 0, "by_vectors": 0, "by_captures": 0} in entry["pairs_by_release"]
    assert entry["structures_proven"] == 1
    assert entry["apis"][52]["proven"] == [2]
    produce = entry["apis"][0]
    assert produce["defined"] == list(range(14))
    assert produce["proven"] == [8, 9]
    assert produce["vectors"] == {"8": ["4.4.0"]}
    assert produce["captures"] == {"9": ["a.pcap", "b.pcap"]}
    out = text("--coverage")
    assert out.endswith(f"\npairs of API and version: {PAIRS} defined, 3 proven\n")
    assert ["52", "Vote", "3", "1", "2", "0-1"] in words(out)
    assert ["0", "Produce", "14", "2", "8", "9", "0-7,", "10-13"] in words(out)
    assert ["4.4", "7", "0", "0", "0"] in words(out)


def test_the_current_coverage() -> None:
    entry = values("--coverage")
    assert entry["pairs_defined"] - entry["pairs_proven"] == 1
    (left,) = (api for api in entry["apis"] if api["defined"] != api["proven"])
    assert (left["api"], set(left["defined"]) - set(left["proven"])) == ("BrokerRegistration", {5})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["Produc"], "no API is called 'Produc'; did you mean Produce?"),
        (["listofset"], "no API is called 'listofset'; did you mean ListOffsets?"),
        (["zzzzzzzz"], "no API is called 'zzzzzzzz'; `kafkasniff api` lists them"),
        (["999"], f"no API has the key 999: keys range from 0 to {api_keys()[-1]}"),
        (["123456789012345678901234567890"], "no API has the key"),
        (["Produce", "99"], "Produce has no version 99: it has 0-13"),
        (["ConfigRecord", "5"], "ConfigRecord has no version 5: it has 0"),
        (["Produce", "--program"], "--program needs a version"),
        (["--program"], "--program needs an API and a version"),
        (["--release", "9.9"], "unknown release '9.9'"),
        (["--release", "3.9", "--program", "Produce", "1"], "--release selects the versions"),
        (["--coverage", "Produce"], "--coverage covers all APIs"),
        (["ConfigRecord", "--release", "3.9"], "ConfigRecord is not an API"),
        (["Produce", "-1"], "No such option"),
        (["Produce", "x"], "Invalid value for '[VERSION]'"),
        (["--format", "xml"], "xml"),
    ],
)
def test_bad_usage(arguments: list[str], expected: str) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (Exit.USAGE, "")
    assert expected in err
    assert err.count("\n") == 1


def test_colours_only_on_request() -> None:
    assert "\x1b[" not in text()
    code, out, _ = command("43", "--color", "always")
    assert code == Exit.OK
    assert "\x1b[" in out


def test_narrow_terminal() -> None:
    assert len(text(width=60).splitlines()) >= len(api_keys())
