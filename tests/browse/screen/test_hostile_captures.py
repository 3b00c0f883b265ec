"""Huge messages, damaged captures and captures that end within a packet: the screen shows what there is, keys work."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.body_view import MAX_ROWS
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree, BytesPane
from kafkasniff.browse.screen.detail_panes import RecordTable
from kafkasniff.browse.screen.menus import CopyMenu
from tests.browse.screen.driving import ERRORS, drive, listed, press, said, status
from tests.choice import ALL, fewer
from tests.craft.conversation import Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.write import write_pcap
from tests.kafka.records_craft import Record, batch_of

HUGE = 30_000_000 if ALL else 3_000_000


def damaged(data: bytes, chance: random.Random, times: int) -> bytes:
    """Flip, overwrite, remove, duplicate or insert bytes at some places."""
    out = bytearray(data)
    for _ in range(times):
        at = chance.randrange(len(out) + 1)
        match chance.randint(0, 5):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"))
            case 2:
                del out[at : at + chance.randint(1, 50)]
            case 3:
                out[at:at] = out[at : at + chance.randint(1, 200)]
            case 4:
                out[at:at] = chance.randbytes(chance.randint(1, 50))
            case 5:
                del out[max(at, len(out) // 2) :]
        if not out:
            out += b"\0"
    return bytes(out)


@pytest.mark.extended
def test_a_huge_message(tmp_path: Path) -> None:
    made = Conversation(("10.0.0.5", 50_000), ("10.0.0.9", 9092))
    made.handshake()
    # As clients begin; so the connection is known to be Kafka.
    made.exchange(request_bytes(18, 3, 0), response_bytes(18, 3, 0))
    records = batch_of([Record(0, 0, b"key", b"\x1b]0;owned\x07" + b"v" * HUGE)])
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
    responses = [{"name": "orders", "partition_responses": [{"index": 0, "error_code": 10}]}]
    made.exchange(request_bytes(0, 9, 1, acks=1, topic_data=data), response_bytes(0, 9, 1, responses=responses), 60_000)
    made.close()

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("G")
        row = listed(app).row
        assert row.request > HUGE
        await press(app, pilot, "enter")
        await press(app, pilot, "x")
        rows = app.query_one(BytesPane)
        assert "orders" in "".join(one.text for one in rows.rows.rows)
        await press(app, pilot, "tab", "plus")
        assert rows.count > MAX_ROWS
        await press(app, pilot, "shift+tab", "slash", *"vvv", "enter")
        assert app.query_one(BodyTree).border_title == "match 1 of 1"
        await press(app, pilot, "escape", "r")
        table = app.query_one(RecordTable)
        assert len(table.rows) == 1
        await press(app, pilot, "enter")
        await pilot.press("G", "escape", "escape")
        await press(app, pilot, "y")
        assert isinstance(app.screen, CopyMenu)
        await press(app, pilot, "j", "enter")
        assert "too many for the clipboard" in said(app)
        assert app.clipboard == ""
        await pilot.press("escape")
        written = [segment.text for line in app.screen._compositor.render_strips() for segment in line]
        assert "\x1b" not in "".join(written)

    drive(steps, write_pcap(tmp_path / "huge.pcap", made.packets))


@pytest.mark.parametrize("seed", range(1, fewer(2, 4)))
def test_damaged_captures(seed: int, tmp_path: Path) -> None:
    data = ERRORS.read_bytes()
    path = tmp_path / "damaged.pcap"
    # Half of them are also cut within a packet.
    path.write_bytes(data[:24] + damaged(data[24 : -101 if seed % 2 else None], random.Random(seed), 12))

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        assert app.is_broken or not seed % 2
        assert ("a capture is broken" in status(app)) is app.is_broken
        for keys in (("enter", "x"), ("|",), ("%", "%"), ("r",), ("escape", "escape", "escape"), ("s", "r", "o")):
            await press(app, pilot, *keys)
        await pilot.press("escape")
        for _ in range(2):
            await press(app, pilot, "G", "k", "enter")
            await pilot.press("escape", "b")
        assert app.focused is listed(app)
        assert f"/{len(listed(app).index):,} " in status(app)

    drive(steps, path)
