"""The page itself: what is in it, that nothing in it acts, and how large it can become."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.analysis.detectors import Detectors, Evidence, Finding
from kafkasniff.analysis.detectors.connections import ClientIdentity, Transport
from kafkasniff.report import contents as contents_module
from kafkasniff.report.contents import Contents, Gathering
from kafkasniff.report.page import MAX_PAGE, page_of
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import CountedRows
from tests.analysis.tables import Row, batch_of, connection, exchange, partition
from tests.choice import examples
from tests.craft.batches import batch
from tests.report.reviewed import FOLDER, Elements, words_of
from tests.test_hostile_strings import EVIL, harmless, talk

pytest.importorskip("vl_convert")
pytest.importorskip("jinja2")

EVIL_MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" onclick='alert(1)' {{7*7}} &lt; --> ]]>"
ATTRIBUTES = {
    "aria-hidden", "aria-label", "charset", "class", "content", "data-filter", "hidden", "href", "http-equiv", "id",
    "lang", "name", "open", "placeholder", "role", "scope", "tabindex", "type",
}  # fmt: skip
"""Strings in HTML; those of charts are tested where charts are made (`test_svg`)."""
DRAWING = {"svg", "g", "path", "rect", "text", "tspan", "line", "circle"}


def checked(page: bytes) -> Elements:
    """The elements of a page in which nothing acts but its one script."""
    found = Elements(page)
    counts = Counter(tag for tag, _ in found.tags)
    assert (counts["script"], counts["style"], counts["html"], counts["body"]) == (1, 1, 1, 1)
    acting = {*("img", "iframe", "object", "embed", "link"), *("base", "form", "audio", "video", "template")}
    assert not counts.keys() & acting
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in found.tags:
        if tag not in DRAWING:
            assert attributes.keys() <= ATTRIBUTES, (tag, attributes)
        assert "style" not in attributes
        if "href" in attributes:
            # Each link leads to a place of the page itself.
            assert attributes["href"].removeprefix("#") in ids
            assert attributes["href"].startswith("#")
    (policy,) = (each["content"] for tag, each in found.tags if tag == "meta" and "http-equiv" in each)
    for tag in ("script", "style"):
        reported = base64.b64encode(hashlib.sha256(found.inside[tag].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{reported}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "://" not in found.inside["script"] + found.inside["style"]
    return found


def contents(**tables: list[Row]) -> Contents:
    gathering = Gathering(Detectors(["unanswered-requests", "hidden-errors"]))
    for table, rows in tables.items():
        gathering.update(batch_of(rows, table), table)
    return gathering.contents()


@pytest.mark.xdist_group("browser")
def test_real_captures(page: Path) -> None:
    """What the page says and what its charts draw was reviewed."""
    assert words_of(page.read_bytes()) == (FOLDER / "page.txt").read_text(encoding="utf-8")
    assert page.with_name("charts.txt").read_text() == (FOLDER / "charts.txt").read_text(encoding="utf-8")
    found = checked(page.read_bytes())
    drawn = [each["aria-label"] for tag, each in found.tags if tag == "svg"]
    assert [f"== {label}" for label in drawn] == re.findall("^== .*", (FOLDER / "charts.txt").read_text(), re.MULTILINE)
    assert 100_000 < page.stat().st_size < 2_000_000


def test_what_is_missing() -> None:
    nothing = checked(page_of(contents(exchanges=[]), ["-"])).text
    assert "No Kafka traffic." in nothing
    assert "without times" in nothing
    assert checked(page_of(Gathering().contents(), [], broken=True)).text.count("truncated or damaged") == 1
    rows = [{**exchange("Produce", exchange_id=place), "time_ns": None, "time": None} for place in range(3)]
    timeless = checked(page_of(contents(exchanges=rows), ["Ünicode.pcap"])).text
    assert "without times" in timeless
    assert "Produce v" in timeless
    assert "Ünicode.pcap" in timeless


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No charts: drawing them takes most of the time."""
    monkeypatch.setattr("kafkasniff.report.charts.svg_of", lambda spec, label, width: "")


def test_hostile_names(undrawn: None) -> None:
    evil = [*EVIL.values(), EVIL_MARKUP]
    found: list[Elements] = []
    for names in (evil, [f"benign-{number}" for number in range(len(evil))]):
        gathering = Gathering()
        rows = CountedRows(ExportOptions(), gathering.update, bodies=gathering.bodies)
        rows.feed(batch([packet for number, name in enumerate(names) for packet in talk(number, name).packets]))
        found.append(checked(page_of(gathering.contents(rows.end()), names)))
    hostile, benign = found
    harmless("".join(hostile.words))
    assert "alert(1)" not in hostile.inside["script"]
    assert hostile.text.count("alert(1)") > 20
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in benign.tags]


def test_hostile_findings_and_sources() -> None:
    whole = contents(exchanges=[exchange("Produce", exchange_id=0, client_id=EVIL_MARKUP)])
    finding = Finding(
        detector=EVIL_MARKUP, severity="error", title=EVIL_MARKUP, meaning=EVIL_MARKUP, advice=EVIL_MARKUP,
        subject={EVIL_MARKUP: EVIL_MARKUP, "list": [EVIL_MARKUP, 3], "none": None}, count=1, first=None, last=None,
        evidence=(Evidence(1, 0, None, EVIL_MARKUP), Evidence(1, None, 5, ""), Evidence(77, 1, 5, "elsewhere")),
        values={"limit": 3.14159, "whole": 1_000_000, EVIL_MARKUP: True},
    )  # fmt: skip
    found = checked(page_of(msgspec.structs.replace(whole, findings=[finding]), [EVIL_MARKUP, "b"]))
    assert "alert(1)" in found.text
    links = [each["href"] for tag, each in found.tags if tag == "a"]
    assert {"#connection-1-0", "#connection-1", "#finding-1"} <= set(links)
    assert "exchange_id 1 " in found.text
    assert "limit 3.142" in found.text
    assert "whole 1,000,000" in found.text


ANY = st.characters() | st.characters(categories=["Cc", "Cf", "Co", "Mn", "So", "Sk"])
HALF = "\ud83d"


@pytest.mark.extended
@examples(2)
@given(st.text(ANY, max_size=300), st.text(ANY | st.characters(categories=["Cs"]), max_size=700))
@example("\U0001f600" * 200 + "\0\x07\ufffe\ue000", "\U0001f600" * 700)
@example("a" + "\U0001f468\u200d\U0001f469" * 30, f"{HALF}a\ude00" * 300 + "\r\n\u2028")
@example("e\u0301" * 120, "\u202e\x1b[31m\0\udcff")
def test_any_string_anywhere(wire: str, text: str) -> None:
    """`wire`: what rows of tables can hold; `text`: file names and JSON have halves of surrogate pairs, too."""
    rows = [
        exchange(
            api, number / 3, exchange_id=number, client_id=wire, group_id=f"{number}{wire}", software_name=wire,
            software_version=wire, error_code=3, error_count=1, transactional_id=wire,
            partitions=[partition(f"{wire}{number}", 3, error_code=3, bytes=10)],
        )
        for number, api in enumerate(["Produce", wire, "Fetch", "JoinGroup", "SyncGroup"])
    ]  # fmt: skip
    finding = Finding(
        detector=text, severity="error", title=text, meaning=text, advice=text, subject={text: text, "list": [text]},
        count=1, first=None, last=None, evidence=(Evidence(1, 0, None, text),), values={text: text},
    )  # fmt: skip
    whole = msgspec.structs.replace(contents(exchanges=rows), findings=[finding], notes=[text])
    found = checked(page_of(whole, [text, wire, HALF]))
    tags = Counter(tag for tag, _ in found.tags)
    assert tags["svg"] >= 4
    # Half of a pair is an escape, or a question mark where the page is written.
    assert "\ufffd" not in found.text.replace(wire, "").replace(text, "")


@pytest.mark.extended
def test_a_page_is_bounded(undrawn: None) -> None:
    """More of everything than is shown, with names as long as Kafka allows that grow where they are escaped."""
    rows = []
    for number in range(1, 251):
        name = f"{number:04}" + "<" * 245
        rows += [
            exchange(
                "Produce", number / 10 + place, connection_id=number, exchange_id=place, client_id=name,
                client_port=number, broker_port=number, group_id=name, error_code=3, error_count=1,
                partitions=[partition(name, error_code=3, bytes=10)],
            )
            for place in range(2)
        ]  # fmt: skip
    rows += [exchange("Metadata", place / 9, connection_id=1, exchange_id=place + 2) for place in range(500)]
    whole = contents(exchanges=rows, connections=[connection(connection_id=number) for number in range(50)])
    assert len(whole.answer.topics) == contents_module.MAX_ROWS
    assert whole.answer.more["topics"] == 250 - contents_module.MAX_ROWS
    assert len(whole.shown) == contents_module.MAX_SHOWN
    assert whole.connections == 250
    long = "<" * 100_000
    finding = Finding(
        detector="crafted", severity="error", title=long, meaning=long, advice=long, subject={long: long}, count=99,
        first=None, last=None, evidence=tuple(Evidence(number, 0, None, long) for number in range(1, 11)),
        values=dict.fromkeys((f"{number}{long}" for number in range(100)), long),
    )  # fmt: skip
    limit = contents_module.MAX_FINDINGS
    whole = msgspec.structs.replace(whole, findings=[finding] * limit, notes=[long] * 1000)
    identities = []
    for number in range(250):
        name = f"{number:04}" + "<" * 10_000
        transport = Transport(True, True, name, name, name, None, name, True)
        identities.append(
            ClientIdentity(
                *("10.0.0.1", (name,) * 100, name, name, f"10.0.0.9:{number}", transport),
                *(name, name, True, True, "failed", name),
                *(2, 5, 6, [(number, number, 5)] * 10),
            )
        )
    whole = msgspec.structs.replace(whole, identities=identities)
    page = page_of(whole, [f"{number}" * 9 for number in range(500)])
    assert len(page) < MAX_PAGE / 2
    text = checked(page).text
    assert "and 226 more not shown on this page" in text
    assert "500 sources" in text
