"""The page of some real captures, as text that is reviewed and compared: what it says, and what its charts draw.

``python -m tests.report.reviewed`` regenerates ``page.txt`` and ``charts.txt``.
"""

from __future__ import annotations

import json
import os
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.report.svg import svg_of
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

FOLDER = Path(__file__).parent
CAPTURES = ("java-group-classic.pcap", "java-errors.pcap", "java-sasl.pcap", "tls/tls12-kafka-python.pcapng")
OURS = {"script", "style", "text", "tspan"}
"""Elements without words of the page: its code, and labels that the drawing library chooses."""


class Elements(HTMLParser):
    """Elements of a page with their attributes, its text, and its words: a piece per line, anchors between them."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.lines: list[str] = []
        self.inside: dict[str, str] = {}
        self._now = ""
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._now = tag
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self.lines += [f"#{value}" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        self._now = ""

    def handle_data(self, data: str) -> None:
        if self._now in ("script", "style"):
            self.inside[self._now] = self.inside.get(self._now, "") + data
        else:
            self.words.append(data)
        words = " ".join(data.split())
        if words and self._now not in OURS:
            self.lines.append(words)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def words_of(page: bytes) -> str:
    return "\n".join(Elements(page).lines) + "\n"


def shortened(value: Any) -> Any:
    """A chart's specification: of its data the number of rows and the first three, floats with nine digits."""
    if isinstance(value, dict):
        found = {name: shortened(one) for name, one in value.items()}
        return found | {"rows": len(value["values"])} if isinstance(value.get("values"), list) else found
    if isinstance(value, list | tuple):
        return [shortened(one) for one in value[:3]] if value and isinstance(value[0], dict) else list(value)
    return float(f"{value:.9g}") if isinstance(value, float) else value


def make(path: Path) -> str:
    """Write the page, and return the specifications of its charts. The current folder must be the checkout."""
    charts: list[str] = []

    def noted(spec: dict[str, Any], label: str, width: int) -> str:
        charts.append(f"== {label}\n{width} wide: {json.dumps(shortened(spec), indent=1, ensure_ascii=False)}")
        return svg_of(spec, label, width)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkasniff.report.charts.svg_of", noted)
        result = kafkasniff("report", *(f"captures/{name}" for name in CAPTURES), "-o", path, "-q")
    assert (result.code, result.err) == (0, "")
    return "\n".join(charts) + "\n"


def main() -> None:
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        (FOLDER / "charts.txt").write_text(make(path), encoding="utf-8")
        (FOLDER / "page.txt").write_text(words_of(path.read_bytes()), encoding="utf-8")


if __name__ == "__main__":
    main()
