"""Markdown tables of figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def against(value: float, target: float | None) -> list[str]:
    """Two cells: the target, and whether it was met."""
    if target is None:
        return ["", ""]
    return [f"≤ {target:g}", "yes" if value <= target else "**no**"]
