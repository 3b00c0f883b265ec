"""Charts: Vega-Lite specifications (https://vega.github.io/vega-lite/) rendered to SVG that is safe to embed.

vl-convert renders them with Vega, without a browser or the network. Its output is filtered here: only elements and
attributes that charts need reach a page, no styles, links, scripts or ids. Colours are variables of the page's style,
so that one picture works in light and dark mode and in print. Each mark's description becomes its tooltip.

Vega shortens labels by UTF-16 code units, so it can cut an emoji in half, and then rendering the picture fails.
Characters that XML or JSON cannot hold fail, too. Characters of the private use area (U+E000 to U+F8FF) are one unit
each and never occur in text that was made safe to show. So each stands for one such character while the picture is
drawn.
"""

from __future__ import annotations

import re
from typing import Any, Final
from xml.etree import ElementTree

from kafkasniff.errors import MissingExtraError
from kafkasniff.text.printable import printable

_FIRST: Final = 0xE000
_LAST: Final = 0xF8FF
_NOT_KNOWN: Final = "\ufffd"
"""Used when no stand-ins are left."""
_REPLACED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\uf8ff\ufffe\uffff\U00010000-\U0010ffff]")
_STANDING_IN: Final = re.compile("[\ue000-\uf8ff]")


class StandIns:
    """The stand-ins of one picture."""

    def __init__(self) -> None:
        self._by_character: dict[str, str] = {}
        self._characters: dict[str, str] = {}

    def replaced(self, value: Any) -> Any:
        """A specification, or a part of one, with stand-ins in all of its strings except field names."""
        if isinstance(value, str):
            return _REPLACED.sub(self._stand_in, value)
        if isinstance(value, dict):
            return {name: self.replaced(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.replaced(one) for one in value]
        return value

    def restored(self, text: str) -> str:
        """A picture with the original characters, or with escapes of those that cannot be shown."""
        return _STANDING_IN.sub(lambda match: self._characters.get(match[0], _NOT_KNOWN), text)

    def _stand_in(self, match: re.Match[str]) -> str:
        character = match[0]
        known = self._by_character.get(character)
        if known is None:
            code = _FIRST + len(self._by_character)
            if code > _LAST:
                return _NOT_KNOWN
            known = self._by_character[character] = chr(code)
            self._characters[known] = printable(character)
        return known


WIDTH: Final = 360
"""Width of charts in SVG units: that of a phone. The page puts as many side by side as fit."""
HALF_WIDTH: Final = 550
"""Width of charts that are one of two in a section."""
FULL_WIDTH: Final = 1120
"""Width of the only chart of a section."""
HEIGHT: Final = 150
FONT: Final = "Arial, Liberation Sans, Helvetica, sans-serif"
"""Fonts with the same metrics if one of the first three is installed: space for labels is computed when the picture is
drawn.
"""
MAX_SVG: Final = 1 << 20
"""Maximum number of characters of one chart; `spans.MAX_SPANS` and the bounds on series keep it far below."""

SERIES: Final = ("blue", "orange", "green", "purple", "teal", "brown", "pink", "olive")
"""Names of the colours that distinguish series."""
_COLOURS: Final = {
    "blue": "#2f6fb3",
    "orange": "#d9730d",
    "green": "#2a9d63",
    "purple": "#8257b8",
    "teal": "#128a9c",
    "brown": "#8d6e3f",
    "pink": "#c2498c",
    "olive": "#7d8a1f",
    "red": "#c4372b",
    "grey": "#8a8f98",
    "text": "#444",
    "faint": "#ddd",
    "panel": "#f5f6f8",
}
_TAGS: Final = frozenset({"svg", "g", "path", "rect", "text", "tspan", "line", "circle", "title"})
_ATTRIBUTES: Final = frozenset(
    {
        "viewBox", "class", "transform", "d", "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "width", "height", "cx",
        "cy", "r", "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray",
        "stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "opacity", "font-family", "font-size", "font-weight",
        "font-style", "text-anchor", "pointer-events", "display", "role", "aria-label", "aria-hidden",
    }
)  # fmt: skip
_NAMESPACE: Final = "http://www.w3.org/2000/svg"
_LONG_NUMBER: Final = re.compile(r"-?\d+\.\d{2,}(?:e-?\d+)?")


def colour(name: str) -> str:
    """A colour of the page's style, with a fallback if the picture is used alone."""
    return f"var(--{name},{_COLOURS[name]})"


def _config() -> dict[str, Any]:
    text, faint = colour("text"), colour("faint")
    return {
        "font": FONT,
        "background": None,
        "view": {"stroke": None},
        "axis": {
            "labelColor": text,
            "titleColor": text,
            "gridColor": faint,
            "domainColor": faint,
            "tickColor": faint,
            "labelFontSize": 10,
            "titleFontSize": 10,
            "titleFontWeight": "normal",
            "labelLimit": 110,
        },
        "text": {"color": text},
    }


def svg_of(spec: dict[str, Any], label: str, width: int = WIDTH) -> str:
    """A chart as SVG; `label`: a description for screen readers.

    Raises MissingExtraError if vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("report", "vl-convert-python", "report") from None
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width,
        "height": HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": {"left": 8, "top": 6, "right": 8, "bottom": 2},
        "config": _config(),
        **spec,
    }
    stand_ins = StandIns()
    drawn = vl_convert.vegalite_to_svg(stand_ins.replaced(whole), allowed_base_urls=[])
    return stand_ins.restored(cleaned(drawn, stand_ins.replaced(label)))


def cleaned(svg: str, label: str) -> str:
    """A picture with only what a chart needs. Raises ValueError for anything but SVG."""
    if len(svg) > MAX_SVG:
        raise ValueError("a chart is too long")
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ValueError(f"a chart is not valid XML: {error}") from error
    if root.tag != f"{{{_NAMESPACE}}}svg":
        raise ValueError(f"a chart is not SVG but {root.tag}")
    _clean(root)
    root.attrib = {"viewBox": root.get("viewBox", ""), "class": "chart", "role": "img", "aria-label": label}
    ElementTree.register_namespace("", _NAMESPACE)
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element) -> None:
    described = element.get("aria-label") if element.get("role") == "graphics-symbol" else None
    for declaration in (element.attrib.pop("style", None) or "").split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            element.attrib[name.strip()] = value.strip()
    for name, value in list(element.attrib.items()):
        if name not in _ATTRIBUTES or "url(" in value or name in ("role", "aria-label"):
            del element.attrib[name]
        elif name in ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height"):
            element.set(name, _LONG_NUMBER.sub(_short, value))
    for child in list(element):
        known = isinstance(child.tag, str) and child.tag.removeprefix(f"{{{_NAMESPACE}}}") in _TAGS
        if known and not _is_empty(child):
            _clean(child)
        else:
            element.remove(child)
    if described is not None and element.tag != f"{{{_NAMESPACE}}}g":
        title = ElementTree.Element(f"{{{_NAMESPACE}}}title")
        title.text = described
        element.insert(0, title)


def _is_empty(element: ElementTree.Element) -> bool:
    """Backgrounds and foregrounds of groups that draw nothing."""
    return element.get("display") == "none" or "display: none" in element.get("style", "")


def _short(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".rstrip("0").rstrip(".")
