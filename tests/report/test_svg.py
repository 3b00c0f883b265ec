"""What of a picture comes into a page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kafkasniff.report.svg import MAX_SVG, cleaned, svg_of

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


def test_styles_become_attributes() -> None:
    found = svg('<rect style="fill: var(--blue,#123); stroke-width: 2;" width="1"/>')
    assert 'fill="var(--blue,#123)"' in found
    assert 'stroke-width="2"' in found


def test_descriptions_become_tooltips() -> None:
    found = svg('<g><path d="M0,0" role="graphics-symbol" aria-label="Produce &lt;b&gt;: 5"/></g>')
    assert "<title>Produce &lt;b&gt;: 5</title>" in found


def test_numbers_are_short() -> None:
    assert 'd="M1.2,-3L4,5"' in svg('<path d="M1.23456789,-3.04L4,5.000001e0"/>')


@pytest.mark.parametrize("text", ["", "<svg", "<html/>", "\0", "<svg/>", "x" * (MAX_SVG + 1)])
def test_what_is_no_picture(text: str) -> None:
    with pytest.raises(ValueError, match="a chart is"):
        cleaned(text, "")


def test_a_chart_with_hostile_words() -> None:
    pytest.importorskip("vl_convert")
    evil = "\"><script>alert(1)</script>&amp;'`${x}"
    spec = {
        "data": {"values": [{"x": 1, "y": evil, "told": evil}]},
        "mark": "bar",
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"field": "y", "type": "nominal", "axis": {"labelLimit": 0}},
            "description": {"field": "told"},
        },
    }
    found = svg_of(spec, evil)
    assert "<script" not in found
    texts = [element.text for element in ElementTree.fromstring(found).iter() if element.text]
    assert texts.count(evil) == 2
