"""The vocabulary check: words that this project avoids, in everything that people read.

`tests/vocabulary.toml` lists the words, and the places in which they are right.

`python -m tests.vocabulary` prints each place and fails if there is one, `--count` prints their number by folder.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
SUFFIXES = (".py", ".zig", ".md")
DEFINITIONS = "dissectors"
"""Folder whose text files are checked, too: `kafkasniff api` shows their comments."""

_TEXT_TOKENS = ("COMMENT", "STRING", "FSTRING_MIDDLE")
_BETWEEN = ("NL", "FSTRING_START", "FSTRING_END")
_LITERAL = re.compile(r"""^([A-Za-z]*)(\"{3}|'{3}|"|')(.*)\2$""", re.DOTALL)
_KEY = re.compile(r"[\w.\-/]*")
_FIELD = re.compile(r"\{[^{}]*\}")
_ZIG = re.compile(r"""//[/!]?(.*)|"((?:[^"\\]|\\.)*)\"""")
_CODE = re.compile(r"``.*?``|`[^`]*`", re.DOTALL)


class Place(NamedTuple):
    """A word in the wrong place."""

    path: str
    line: int
    word: str
    instead: str


class _Piece(NamedTuple):
    line: int
    text: str


def python_texts(source: str) -> Iterator[list[_Piece]]:
    """Comments and strings, those of adjacent lines together."""
    found: list[_Piece] = []
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name in _BETWEEN:
            continue
        if name not in _TEXT_TOKENS or (name == "COMMENT") != (before == "COMMENT"):
            if found and not _is_key(found, before):
                yield found
            found = []
        if name in _TEXT_TOKENS:
            text = token.string.lstrip("#: ") if name == "COMMENT" else token.string
            literal = _LITERAL.match(text) if name == "STRING" else None
            if literal is not None:
                text = _FIELD.sub("…", literal[3]) if "f" in literal[1].lower() else literal[3]
            found += [_Piece(token.start[0] + row, line) for row, line in enumerate(text.split("\n"))]
        before = name
    if found and not _is_key(found, before):
        yield found


def _is_key(found: list[_Piece], token: str) -> bool:
    """A string that only programs read: a name of a column, a kind of problem."""
    return token != "COMMENT" and len(found) == 1 and _KEY.fullmatch(found[0].text) is not None


def _adjacent(lines: Iterable[tuple[int, list[str]]]) -> Iterator[list[_Piece]]:
    """The texts of lines, those of adjacent lines together."""
    found: list[_Piece] = []
    for number, texts in lines:
        if not texts and found:
            yield found
            found = []
        found += [_Piece(number, text) for text in texts]
    if found:
        yield found


def zig_texts(source: str) -> Iterator[list[_Piece]]:
    """Comments and strings."""
    return _adjacent(
        (number, [match[1] if match[1] is not None else match[2] for match in _ZIG.finditer(line)])
        for number, line in enumerate(source.split("\n"), 1)
    )


def comments(source: str) -> Iterator[list[_Piece]]:
    """The comments of a definition."""
    return _adjacent(
        (number, [line.partition("#")[2]] if "#" in line else []) for number, line in enumerate(source.split("\n"), 1)
    )


def prose(source: str) -> Iterator[list[_Piece]]:
    """The paragraphs of a Markdown page without code blocks."""
    fenced = False
    found: list[_Piece] = []
    for number, line in enumerate(source.split("\n"), 1):
        fence = line.lstrip().startswith(("```", "~~~"))
        if fence:
            fenced = not fenced
        if fence or fenced or not line.strip() or line.lstrip().startswith(("|", "-", "#")):
            if found:
                yield found
            found = []
        if not fence and not fenced and line.strip():
            found.append(_Piece(number, line.strip("|-# ")))
    if found:
        yield found


_TEXTS = {".py": python_texts, ".zig": zig_texts, ".md": prose, ".txt": comments}


def places(path: str, source: str, words: dict[re.Pattern[str], str]) -> Iterator[Place]:
    """The avoided words in a file."""
    for pieces in _TEXTS[Path(path).suffix](source):
        text, lines = "", []
        for piece in pieces:
            part = _blank(piece.text) + " "
            text += part
            lines += [piece.line] * len(part)
        text = _CODE.sub(lambda match: "·" * len(match[0]), text)
        for word, instead in words.items():
            for match in word.finditer(text):
                yield Place(path, lines[match.start()], match[0].strip()[:60], instead)


def _blank(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def is_below(path: str, folder: str) -> bool:
    """Whether a path is this file, or is in this folder."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def checked_files() -> list[str]:
    """All files of the repository that people read."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        # Not a clone: an unpacked archive has only the project's own files.
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    hidden = re.compile(r"(^|/)(\.venv|node_modules)/")
    return sorted({name for name in names if _is_checked(name) and not hidden.search(name)})


def _is_checked(name: str) -> bool:
    return name.endswith(SUFFIXES) or (name.endswith(".txt") and is_below(name, DEFINITIONS))


def settings() -> dict[str, Any]:
    """The word list."""
    return tomllib.loads(LIST.read_text())


def all_places(names: list[str]) -> Iterator[Place]:
    """The avoided words in files, except where they are allowed."""
    chosen = settings()
    words = {re.compile(pattern): instead for pattern, instead in chosen["words"].items()}
    for name in names:
        path = ROOT / name
        if not path.is_file():
            continue
        allowed = [
            word.lower() for folder, some in chosen["allowed"].items() if is_below(name, folder) for word in some
        ]
        for place in places(name, path.read_text(encoding="utf-8", errors="replace"), words):
            if "*" not in allowed and place.word.lower() not in allowed:
                yield place


def main(arguments: list[str]) -> int:
    """Print the places found; return 1 if there are any."""
    counted: Counter[str] = Counter()
    for place in all_places(checked_files()):
        counted[place.path.split("/")[0]] += 1
        print(f"{place.path}:{place.line}: {place.word!r}: {place.instead}")
    if "--count" in arguments:
        for folder, count in sorted(counted.items()):
            print(f"{folder}: {count}")
    return 1 if counted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
