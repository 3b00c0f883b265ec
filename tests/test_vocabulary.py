"""The vocabulary check finds avoided words where people read them, and nowhere else."""

from __future__ import annotations

import re

import pytest

from tests import vocabulary
from tests.vocabulary import is_below, places, settings

WORDS = {re.compile(pattern): instead for pattern, instead in settings()["words"].items()}


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("a.py", "# It is told late.\n", [(1, "told")]),
        ("a.py", "told = 1\nself.told(behind)\n", []),
        ("a.py", 'text = f"{told} goes {behind} here"\n', []),
        ("a.py", 'text = (\n    f"{one} goes "\n    "on"\n)\n', [(2, "goes on")]),
        ("a.py", '"""A summary.\n\n    A reader goes\n    on.\n    """\n', [(3, "goes on")]),
        ("a.py", 'columns = ("told", "live-behind")\n', []),
        ("a.py", "# `told` is a name\n", []),
        ("a.py", "# One. Of two rows one stays. Of course.\n", [(1, "Of")]),
        ("a.zig", '// It comes again\nconst told = "stands in";\n', [(1, "comes again"), (2, "stands in")]),
        ("a.txt", "# It is\n# told.\ntold 4  # behind\n", [(2, "told"), (3, "behind")]),
        ("a.md", "# Reported\n\nIt is\n`told` and goes\non.\n\n```\ntold\n```\n", [(4, "goes on")]),
    ],
)
def test_words(name: str, source: str, found: list[tuple[int, str]]) -> None:
    assert sorted((place.line, place.word) for place in places(name, source, WORDS)) == sorted(found)


def test_files_that_are_checked() -> None:
    names = vocabulary.checked_files()
    assert {"dissectors/000_produce.txt", "README.md", "kafkasniff/cli/main.py"} <= set(names)
    assert all(is_below(name, "dissectors") for name in names if name.endswith(".txt"))
    assert not is_below("kafkasniff/client.py", "kafkasniff/cli")
