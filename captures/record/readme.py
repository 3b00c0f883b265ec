"""The table of captures in ``captures/README.md``, written from the manifest."""

from __future__ import annotations

from pathlib import Path

from .scenario import read_manifest

BEGIN = "<!-- table: begin -->"
END = "<!-- table: end -->"


def table(directory: Path) -> str:
    """The table's text, markers included."""
    rows = ["| file | shows | client | broker | recorded | packets |", "| --- | --- | --- | --- | --- | --- |"]
    for entry in read_manifest(directory).values():
        cells = [f"`{entry['file']}`", entry["shows"], entry["client"], entry["broker"].removeprefix("Apache Kafka ")]
        rows.append("| " + " | ".join([*cells, entry["recorded"], str(entry["packets"])]) + " |")
    return "\n".join([BEGIN, *rows, END])


def write_table(directory: Path) -> None:
    """Put the table between its markers in README.md. Raises ``ValueError`` if they are missing."""
    file = directory / "README.md"
    text = file.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    file.write_text(before + table(directory) + after, encoding="utf-8")
