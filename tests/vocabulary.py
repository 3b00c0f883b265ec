"""`python -m tests.vocabulary`: prints each place with a word that this project avoids in what people read, and fails
if there is one. `tests/vocabulary.toml` lists the words, and the places in which they are right."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
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


Lines = Iterator[tuple[int, str | None]]
"""Numbers of lines with their texts; None ends a paragraph."""


def python_texts(source: str) -> Lines:
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name in _BETWEEN:
            continue
        if name not in _TEXT_TOKENS or (name == "COMMENT") != (before == "COMMENT"):
            yield token.start[0], None
        if name in _TEXT_TOKENS:
            text = token.string.lstrip("#: ") if name == "COMMENT" else token.string
            literal = _LITERAL.match(text) if name == "STRING" else None
            if literal is not None:
                text = _FIELD.sub("…", literal[3]) if "f" in literal[1].lower() else literal[3]
            yield from enumerate(text.split("\n"), token.start[0])
        before = name


def zig_texts(source: str) -> Lines:
    for number, line in enumerate(source.split("\n"), 1):
        texts = [match[1] if match[1] is not None else match[2] for match in _ZIG.finditer(line)]
        yield from ((number, text) for text in texts or [None])


def comments(source: str) -> Lines:
    for number, line in enumerate(source.split("\n"), 1):
        yield number, line.partition("#")[2] if "#" in line else None


def prose(source: str) -> Lines:
    """A Markdown page without code blocks."""
    fenced = False
    for number, line in enumerate(source.split("\n"), 1):
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced = fenced != fence
        if fence or fenced or not line.strip() or line.lstrip().startswith(("|", "-", "#")):
            yield number, None
        if not fence and not fenced and line.strip():
            yield number, line.strip("|-# ")


_TEXTS = {".py": python_texts, ".zig": zig_texts, ".md": prose, ".txt": comments}


def paragraphs(path: str, source: str) -> Iterator[list[tuple[int, str]]]:
    """Adjacent lines, except strings that only programs read: a name of a column, a kind of problem."""
    found: list[tuple[int, str]] = []
    for number, text in (*_TEXTS[Path(path).suffix](source), (0, None)):
        if text is not None:
            found.append((number, text))
            continue
        if found and (len(found) > 1 or not _KEY.fullmatch(found[0][1])):
            yield found
        found = []


def places(path: str, source: str, words: dict[re.Pattern[str], str]) -> Iterator[Place]:
    for paragraph in paragraphs(path, source):
        text, lines = "", []
        for number, line in paragraph:
            part = " ".join(line.split()) + " "
            text += part
            lines += [number] * len(part)
        text = _CODE.sub(lambda match: "·" * len(match[0]), text)
        for word, instead in words.items():
            for match in word.finditer(text):
                yield Place(path, lines[match.start()], match[0].strip()[:60], instead)


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


def main() -> int:
    """Print the places found; return 1 if there are any."""
    found = list(all_places(checked_files()))
    for place in found:
        print(f"{place.path}:{place.line}: {place.word!r}: {place.instead}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
