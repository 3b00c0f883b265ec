"""`RESULTS.md`: one page with a section per benchmark; each benchmark replaces only its own section."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent / "RESULTS.md"
HEAD: Final = """# Results

Each section is written by the benchmark that it names; [README.md](README.md) says how they measure.
"""


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace the section `name` with `text`, or append it if there is none yet."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n\n{text.strip()}\n\n{end}"
    before = page.read_text() if page.exists() else HEAD
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    after, count = found.subn(lambda _: section, before, count=1)
    page.write_text(after if count else f"{before.rstrip()}\n\n{section}\n")
