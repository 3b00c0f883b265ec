"""The menu of what can be followed from an exchange. Keys for jumps: test_key_help.py."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.menus import Choices, FollowMenu
from tests.browse.screen.driving import drive, listed, press, settled
from tests.choice import one_in
from tests.conftest import ROOT

TRANSACTIONS = ROOT / "captures" / "java-transactions.pcap"


def at_first(app: Explorer, api: str) -> None:
    rows = listed(app)
    rows.move_to(next(line for line in range(len(rows.index)) if rows.index.row(line).api.startswith(f"{api} ")))


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
