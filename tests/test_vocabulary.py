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
        ("a.py", "# A comment goes\n# on here.\n", [(1, "goes on")]),
        ("a.py", 'columns = ("told", "live-behind")\n', []),
        ("a.py", "# `told` is a name\n", []),
        ("a.py", "# Of two rows one stays.\n", [(1, "Of")]),
        ("a.py", "# One. Of two rows one stays. Of course.\n", [(1, "Of")]),
        ("a.py", "# What is lost is told as a problem.\n", [(1, "told"), (1, "What is lost is told as a problem.")]),
        ("a.py", "# What is a row?\n", []),
        ("a.zig", '// It comes again\nconst told = "stands in";\n', [(1, "comes again"), (2, "stands in")]),
        ("a.zig", "const behind = told;\n", []),
        (
            "a.zig",
            "// It needs nothing but\n// room, and takes the place of it.\n",
            [(1, "nothing but"), (2, "takes the place of")],
        ),
        ("a.py", "# Valid up to there, as all that there are.\n", [(1, "all that there are"), (1, "up to there")]),
        ("a.py", "# It is no pattern, also in a folder.\n", [(1, ", also in"), (1, "is no p")]),
        ("a.py", "# There is no pattern. So many rows that it is no longer read.\n", []),
        (
            "a.py",
            "# At most so many rows; each further one is called so.\n",
            [(1, "called so"), (1, "each further"), (1, "so many")],
        ),
        ("a.txt", "# It is\n# told.\ntold 4  # behind\n", [(2, "told"), (3, "behind")]),
        ("a.md", "# Reported\n\nIt is\n`told` and goes\non.\n\n```\ntold\n```\n", [(4, "goes on")]),
    ],
)
def test_words(name: str, source: str, found: list[tuple[int, str]]) -> None:
    assert sorted((place.line, place.word) for place in places(name, source, WORDS)) == sorted(found)


def test_definitions_are_checked() -> None:
    names = vocabulary.checked_files()
    assert "dissectors/000_produce.txt" in names
    assert all(is_below(name, "dissectors") for name in names if name.endswith(".txt"))


def test_folders() -> None:
    assert is_below("kafkasniff/cli/main.py", "kafkasniff/cli")
    assert is_below("README.md", "README.md")
    assert not is_below("kafkasniff/client.py", "kafkasniff/cli")


@pytest.mark.parametrize(("text", "code"), [("# It is told.\n# It goes on.\n", 1), ("# It is reported.\n", 0)])
def test_the_command_fails_for_avoided_words(
    text: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: vocabulary.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.py").write_text(text)
    monkeypatch.setattr(vocabulary, "ROOT", tmp_path)
    monkeypatch.setattr(vocabulary, "checked_files", lambda: ["a.py"])
    assert vocabulary.main(["--count"]) == code
    assert capsys.readouterr().out.count("a.py:") == 3 * code
