"""Screens are as in `screens/`, and fit terminals of 60 to 200 columns without losing the names that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis import question_names
from kafkasniff.cli.render.tables import MIN_TEXT
from kafkasniff.engine.inspector import Inspector
from kafkasniff.live.columns import CLIENTS, TABLES
from kafkasniff.live.state import ViewState
from kafkasniff.live.top import TopModel
from kafkasniff.text.printable import display_width, printable
from tests.choice import in_turn, one_in
from tests.cli.console import kafkasniff
from tests.cli.transcripts import COMMAND, again, transcripts
from tests.conftest import ROOT
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.write import write_pcap
from tests.live.scenes import drawn, opened
from tests.test_hostile_strings import talk

CAPTURES = sorted((ROOT / "captures").glob("*.pcap*"))
WIDTHS = (60, 80, 120, 200)
TURNS = in_turn(one_in(15, CAPTURES), WIDTHS, 4, with_all=4)
FITTED = ("stats --top 10", "timing --by api,client", "diff --top 20 captures/java-0.11.pcap")


def ids(value: Any) -> str | None:
    if isinstance(value, tuple):
        return f"{value[0].name}-{value[1]}"
    return value.name if isinstance(value, Path) else None


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_transcripts(path: Path) -> None:
    for expected in re.split(r"\n(?=\$ )", path.read_text()):
        (command,) = COMMAND.finditer(expected)
        found = again(expected).splitlines()
        assert found == expected.splitlines(), f"{path.name}: {command[0]} (python -m tests.cli.transcripts)"


def screen(width: int, *arguments: object) -> str:
    """What a command shows on a terminal, which it must fit."""
    result = kafkasniff(*arguments, width=width, stdout_tty=True, environ={"NO_COLOR": "1"})
    assert max(map(display_width, result.lines), default=0) <= width, result.text
    return result.text


def keeps(text: str, names: Iterator[Any]) -> None:
    """The text has all names in one piece that no table may wrap."""
    for name in names:
        if name is not None and len(shown := printable(str(name))) <= MIN_TEXT:
            assert shown in text


def named(answer: dict[str, Any]) -> Iterator[Any]:
    """Names in an answer of `stats`, `timing` or `diff`."""
    for key, rows in {"client_id": "clients", "topic": "topics", "group_id": "groups", "broker_id": "brokers"}.items():
        yield from (row.get(key) for row in answer.get(rows) or () if row.get("differs", True))
    yield from (group["keys"]["client_id"] for group in answer.get("groups") or () if "keys" in group)


@pytest.mark.parametrize(("turn", "command"), one_in(3, in_turn(TURNS, FITTED, 2, with_all=6)), ids=ids)
def test_tables_fit(turn: tuple[Path, int], command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    path, width = turn
    (answer,) = kafkasniff(*command.split(), "-q", "--format", "json", path).objects
    keeps(screen(width, *command.split(), "-q", path), named(answer))


@pytest.mark.parametrize(("command", "width"), in_turn(["check", "analyze"], WIDTHS, 2))
def test_lists(command: str, width: int) -> None:
    """Wrapped on a terminal; in a pipe, each question or detector starts a line of its own at any width."""
    shown = screen(width, command, "--list")
    names = [line.split()[0] for line in kafkasniff(command, "--list").lines if not line.startswith(" ")]
    assert [line.split()[0] for line in shown.splitlines() if not line.startswith(" ")] == names
    assert len(names) >= 17


@pytest.mark.parametrize("width", WIDTHS)
def test_decode_bytes_of_long_fields(width: int) -> None:
    """A field that does not fit beside its bytes is below them; no row of bytes is lost."""
    command = ("decode-bytes", "-x", kafka.metadata_request(2, ["t" * 50, "orders"]).hex())
    shown = (screen(width, *command), kafkasniff(*command, width=width).text)
    rows, all_rows = (re.findall("^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)", text, re.MULTILINE) for text in shown)
    assert [row.strip() for row in rows] == [row.strip() for row in all_rows]
    assert 'topics[1].name: "orders"' in " ".join(shown[0].split())


SENTENCES = ("check", "security", "audit --target 4.0", "audit --target 4.0 --from 3.0", "timing --exchange 3")


@pytest.mark.parametrize(("turn", "command"), in_turn(TURNS, SENTENCES, 3, with_all=10), ids=ids)
def test_sentences(command: str, turn: tuple[Path, int]) -> None:
    sentences(command, *turn)


def sentences(command: str, capture: Path, width: int) -> str:
    """They are wrapped. Only a word that is wider than the line may pass its end, and a command to paste."""
    result = kafkasniff(*command.split(), "-q", capture, width=width, stdout_tty=True, environ={"NO_COLOR": "1"})
    for line in result.lines:
        pasted = "kafkasniff " in line or str(capture) in line
        assert display_width(line) <= width or pasted or " " not in line.strip(), line
    return result.text


LONG = ("orders-of-the-north-european-warehouse." * 5, "no-blank-to-wrap-at" * 4, "注文" * 30, "billing")
ADDRESSES = {"10.0.0.5": "2001:db8:1234:5678:9abc:def0:1234:5678", "10.0.0.9": "2001:db8:aaaa:bbbb:cccc:dddd:eeee:9"}


def long_names() -> list[Packet]:
    """Clients, topics, groups and everything else with long names, wide ones among them, at IPv6 addresses."""
    talks = (one for number, name in enumerate(LONG) for one in talk(number, name).packets)
    packets = sorted(talks, key=lambda packet: packet.time_ns)
    return [packet.but(src=ADDRESSES[packet.src], dst=ADDRESSES[packet.dst]) for packet in packets]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pcap(tmp_path_factory.mktemp("long") / "long.pcap", long_names())


@pytest.mark.parametrize("width", one_in(4, WIDTHS))
def test_long_names_and_addresses(long: Path, width: int) -> None:
    assert "billing" in screen(width, "stats", "-q", long)
    assert "billing" in screen(width, "timing", "-q", "--by", "api,client", long)
    assert "billing" in screen(width, "diff", "-q", "--all", long, long)
    for command in SENTENCES:
        sentences(command, long, width)
    text = sentences("security", long, width)
    for address in ADDRESSES.values():
        assert address in text


@pytest.mark.parametrize(("question", "width"), one_in(6, in_turn(question_names(), WIDTHS, 4, with_all=4), 1))
def test_answers_with_long_names(question: str, width: int, long: Path) -> None:
    screen(width, "analyze", question, "-q", long)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_live_screen_with_long_names(width: int) -> None:
    inspector, top = Inspector(exchanges=True, connections=True), TopModel()
    for event in (*inspector.feed(batch(long_names())), *inspector.close()):
        top.take(event)
    screens = [drawn(top.snapshot(), ViewState(table=table), width, 24) for table in range(len(TABLES))]
    screens.append(drawn(top.snapshot(focus=1), opened(("connection", 1)), width, 24))
    for text in screens:
        assert max(map(display_width, text.splitlines())) <= width
    assert "billing" in screens[TABLES.index(CLIENTS)]
