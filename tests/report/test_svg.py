"""What of a picture comes into a page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.report.svg import MAX_SVG, StandIns, cleaned, svg_of
from kafkasniff.text.printable import printable
from tests.choice import examples

NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def svg(inside: str) -> str:
    return cleaned(f'<svg {NAMESPACES} width="9" viewBox="0 0 9 9" onload="x()">{inside}</svg>', "a picture")


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<g onclick="alert(1)" id="x" href="http://x"></g>',
        '<a xlink:href="javascript:alert(1)"><path d="M0,0"/></a>',
        '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><img src="x"/></body></foreignObject>',
        "<style>@import 'http://x';</style>",
        '<image xlink:href="http://x/y.png"/>',
        '<rect fill="url(http://x/y)" filter="url(#a)"/>',
        '<use xlink:href="#a"/><!-- alert --><?alert 1?>',
        '<animate attributeName="href" to="javascript:alert(1)"/>',
    ],
)
def test_only_what_a_chart_needs(inside: str) -> None:
    found = svg(inside)
    for word in ("alert", "http://x", "url(", "onload", "onclick", "javascript", "id=", "style", "script", "href"):
        assert word not in found
    root = ElementTree.fromstring(found)
    assert root.get("aria-label") == "a picture"
    assert root.get("width") is None


@pytest.mark.parametrize("text", ["", "<svg", "<html/>", "\0", "<svg/>", "x" * (MAX_SVG + 1)])
def test_input_that_is_not_a_picture(text: str) -> None:
    with pytest.raises(ValueError, match="a chart is"):
        cleaned(text, "")


def test_what_a_chart_looks_like_is_kept() -> None:
    """Styles become attributes, descriptions tooltips, and numbers short."""
    found = svg('<rect style="fill: var(--blue,#123); stroke-width: 2;" width="1"/>')
    assert 'fill="var(--blue,#123)"' in found
    assert 'stroke-width="2"' in found
    found = svg('<path d="M1.23456789,-3.04L4,5.000001e0" role="graphics-symbol" aria-label="Produce &lt;b&gt;: 5"/>')
    assert 'd="M1.2,-3L4,5"' in found
    assert "<title>Produce &lt;b&gt;: 5</title>" in found


TEXT = st.text(st.characters() | st.characters(categories=["Cs", "Cc", "Cf", "Co", "Mn", "So"]), max_size=40)


def bars(label: str) -> dict[str, object]:
    return {
        "data": {"values": [{"y": label, "x": 0, "x2": 5, "told": label}]},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "y", "type": "nominal"},
            "x": {"field": "x", "type": "quantitative"},
            "x2": {"field": "x2"},
            "description": {"field": "told"},
        },
    }


@examples(6)
@given(TEXT)
@example("\U0001f600" * 22)
@example("a" + "\U0001f600" * 22)
@example("a\ud83d")
@example("\ud83d\ude00")
@example("\0\x1b\x07\ufffe\ue000")
@example("\u202eabc\u2066<title>&amp;")
@example("\"><script>alert(1)</script>&amp;'`${x}")
@example("e\u0301" * 22)
def test_a_picture_with_any_text(text: str) -> None:
    """Vega shortens labels where it may; what it draws is well-formed, and has the text in its tooltip."""
    drawn = svg_of(bars(text), text)
    drawn.encode()
    assert "<script" not in drawn
    root = ElementTree.fromstring(drawn)
    assert not any("\ue000" <= character <= "\uf8ff" for character in drawn)
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    if text.isprintable() and text.strip() == text != "":
        assert text in titles
    elif text:
        assert titles


@given(TEXT)
def test_placeholders_are_replaced_by_their_text(text: str) -> None:
    stand_ins = StandIns()
    value = stand_ins.replaced({"a": [text, {"b": text, "c": 1}]})
    replaced = value["a"][0]
    assert replaced.encode("utf-16-le").decode("utf-16-le") == replaced
    assert len(replaced) == len(replaced.encode("utf-16-le")) // 2 == len(text)
    assert value == {"a": [replaced, {"b": replaced, "c": 1}]}
    if text.isprintable():
        assert stand_ins.restored(replaced) == text
    assert not any("\ue000" <= character <= "\uf8ff" for character in stand_ins.restored(replaced))


def test_more_characters_than_placeholders() -> None:
    text = "".join(map(chr, range(0x20000, 0x20000 + 7000)))
    stand_ins = StandIns()
    restored = stand_ins.restored(stand_ins.replaced(text))
    assert restored[:6400] == text[:6400]
    assert set(restored[6400:]) == {"\ufffd"}
    assert printable(restored[:6400]) == restored[:6400]
