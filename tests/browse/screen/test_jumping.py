"""Jumps by partition and producer id, and what can be followed."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyField
from kafkasniff.browse.screen.choices import Choices, FollowMenu
from kafkasniff.filters import Candidate
from kafkasniff.filters.places import topic_partitions
from kafkasniff.model import Exchange
from tests.browse.screen.driving import drive, listed, press, settled, status
from tests.browse.test_following import exchanges
from tests.choice import one_in
from tests.conftest import ROOT

TRANSACTIONS = ROOT / "captures" / "java-transactions.pcap"


def at_first(app: Explorer, api: str) -> None:
    rows = listed(app)
    rows.move_to(next(line for line in range(len(rows.index)) if rows.index.row(line).api.startswith(f"{api} ")))


def partitions(exchange: Exchange) -> set[str]:
    return {*topic_partitions(Candidate(request=exchange.request, response=exchange.response, ended=exchange))}


@pytest.mark.extended
def test_partition() -> None:
    wanted = {
        (one.connection_id, one.exchange_id) for one in exchanges("java-transactions") if "ledger-0" in partitions(one)
    }

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        at_first(app, "ListOffsets")
        start = rows.cursor
        found = {(rows.row.connection_id, rows.row.exchange_id)}
        await pilot.press("p")
        await settled(app, pilot)
        for _ in range(len(wanted)):
            found.add((rows.row.connection_id, rows.row.exchange_id))
            assert f"partition ledger-0: {len(wanted)}" in status(app)
            await pilot.press("p")
            await pilot.pause()
        assert "no next exchange of partition ledger-0" in status(app)
        for _ in range(len(wanted)):
            found.add((rows.row.connection_id, rows.row.exchange_id))
            await pilot.press("P")
            await pilot.pause()
        assert found == wanted
        assert "no previous exchange" in status(app)
        assert rows.cursor <= start

    drive(steps, TRANSACTIONS)


@pytest.mark.extended
def test_producer() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        at_first(app, "ApiVersions")
        await pilot.press("i")
        await settled(app, pilot)
        assert "this exchange names no producer id" in status(app)
        # The first InitProducerId has an error and no producer id.
        at_first(app, "EndTxn")
        apis = set()
        while "no next exchange of producer id 0" not in status(app):
            await pilot.press("i")
            await settled(app, pilot)
            apis.add(rows.row.api.split()[0])
        assert apis >= {"Fetch", "EndTxn"}
        while "no previous exchange of producer id 0" not in status(app):
            await pilot.press("I")
            await pilot.pause()
        assert rows.row.api.startswith("InitProducerId")

    drive(steps, TRANSACTIONS)


def test_a_field_in_the_tree_decides() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        listed_ = [rows.index.row(line) for line in range(len(rows.index))]
        rows.move_to(next(line for line, row in enumerate(listed_) if row.api.startswith("Fetch") and row.others > 2))
        await pilot.press("enter")
        await settled(app, pilot)
        tree = app._detail.tree_pane
        exchange = app._detail.exchange
        body = exchange.response.body
        number = len(body["responses"]) - 1
        tree.select(BodyField(1, f"responses[{number}].partitions[0].partition_index"))
        await settled(app, pilot)
        await pilot.press("p")
        await settled(app, pilot)
        topic = body["responses"][number]
        assert app._trail.of.title == f"{topic['_topic_name']}-{topic['partitions'][0]['partition_index']}"

    drive(steps, ROOT / "captures" / "java-codecs.pcap")


@pytest.mark.extended
def test_menu() -> None:
    cases = [
        ("Produce", "record", {"Produce", "Fetch"}),
        ("Produce", "key", {"Produce", "Fetch"}),
        ("SyncGroup", "generation", {"JoinGroup", "SyncGroup", "TxnOffsetCommit"}),
        (
            "EndTxn",
            "transactional id",
            {"FindCoordinator", "InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn", "DescribeTransactions"},
        ),
    ]

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        count = len(listed(app).index)
        for api, kind, apis in one_in(2, cases):
            at_first(app, api)
            await press(app, pilot, "F")
            assert isinstance(app.screen, FollowMenu)
            titles = [str(one.prompt) for one in app.screen.query_one(Choices).options]
            at = next(at for at, title in enumerate(titles) if title.startswith(kind))
            await press(app, pilot, "k", "j", *"j" * at, "enter")
            rows = listed(app)
            assert {rows.index.row(place).api.split()[0] for place in range(len(rows.index))} == apis, kind
            await press(app, pilot, "backspace")
            assert len(listed(app).index) == count
        await press(app, pilot, "F", "escape")
        assert app.focused is listed(app)
        assert len(listed(app).index) == count
        # The record that the filter has found is the fourth of a Fetch response.
        app._filter('record.key == "\\x00\\x00\\x00\\x00" and api == "Fetch"')
        await settled(app, pilot)
        await press(app, pilot, "F")
        assert isinstance(app.screen, FollowMenu)
        titles = [str(one.prompt) for one in app.screen.query_one(Choices).options]
        assert [title.split(maxsplit=1) for title in titles[:2]] == [
            ["record", "ledger-0@5"],
            ["key", r"\x00\x00\x00\x00 of ledger"],
        ]

    drive(steps, TRANSACTIONS)


@pytest.mark.extended
def test_what_is_shown_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        calls = []
        look = app._threads._reading.look
        monkeypatch.setattr(app._threads._reading, "look", lambda *args, **more: calls.append(1) or look(*args, **more))
        await pilot.press("G", "enter")
        await settled(app, pilot)
        await pilot.press("j", "j", "x")
        await settled(app, pilot)
        assert app._detail.tree_pane.cursor_line == 2
        await pilot.press("y")
        await settled(app, pilot)
        await pilot.press("escape", "F", "escape")
        await settled(app, pilot)
        assert len(calls) == 1

    drive(steps)
