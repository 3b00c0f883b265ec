"""The filter line, driven by keys."""

from __future__ import annotations

from textual.pilot import Pilot

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.filter_line import FilterLine
from tests.browse.screen.driving import drive, listed, press, settled, status


def apis(app: Explorer) -> set[str]:
    index = listed(app).index
    return {index.row(place).api for place in range(len(index))}


def test_completion_and_marks() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        line = app.query_one(FilterLine)
        await pilot.press("slash")
        line.value = "api == "
        await pilot.pause()
        assert "column" in status(app)
        await pilot.press("enter")
        assert len(listed(app).index) == 49
        line.value = ""
        await pilot.press(*"latency")
        assert line.value == "latency"
        await pilot.pause()
        await pilot.press("tab")
        assert line.value == "latency_ms"
        line.value = 'api == "Fetc'
        line.cursor_position = len(line.value)
        await pilot.pause()
        await pilot.press("tab")
        assert line.value == 'api == "Fetch"'
        line.value = "nonsense == 3"
        assert line.highlighter is not None
        marked = line.highlighter("acks == 0 and nonsense == 3")
        assert [(span.start, str(span.style)) for span in marked.spans] == [(14, "underline red")]
        await pilot.pause()
        assert "column 1: unknown field" in status(app)
        line.value = 'api == "Fetch"'
        await pilot.press("enter")
        await settled(app, pilot)
        assert apis(app) == {"Fetch v18"}
        # One connection, then all again: the exchange under the cursor stays.
        row, count = listed(app).row, len(listed(app).index)
        await press(app, pilot, "slash")
        line.value = ""
        await press(app, pilot, "enter")
        assert len(listed(app).index) == 49 > count
        assert listed(app).row == row
        await press(app, pilot, "f")
        index = listed(app).index
        assert len({index.row(place).connection for place in range(len(index))}) == 1
        assert listed(app).row == row
        await press(app, pilot, "backspace")
        assert len(listed(app).index) == 49
        assert listed(app).row == row
        await press(app, pilot, "l", "less_than_sign")
        assert "no filter `<`" in status(app)
        await pilot.press("j")
        assert "no filter" not in status(app)

    drive(steps, size=(140, 24))
