"""Rotated captures of any size for the measurements of scale: the first files of an endless sequence of equal files."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.scale_traffic import BASE_MB, HOT_SHARE, Base, copies, make_base

FORMAT: Final = 1
"""Rises when the same arguments give other bytes, so that old captures are not taken for new ones."""

FILE_MB: Final = 250
HEADER: Final = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)
FACTS: Final = "captures.json"


@dataclasses.dataclass(frozen=True)
class Form:
    """What captures are made with; the same form gives the same bytes."""

    file_bytes: int = FILE_MB * 1_000_000
    base_bytes: int = BASE_MB * 1_000_000
    seed: int = 1
    format: int = FORMAT
    hot_share: float = HOT_SHARE
    """Share of the bytes that one connection carries."""


def captures(folder: Path, count: int, form: Form) -> list[Path]:
    """The first `count` files, which are made unless they are there already.

    Each has at most `form.file_bytes` bytes and less than one packet less than that. Connections continue from file to
    file; a packet never does.
    """
    paths = _paths(folder, count)
    if is_there(folder, count, form):
        return paths
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write(paths, make_base(form.base_bytes, form.seed, hot_share=form.hot_share), form.file_bytes)
    # Last: without it, making them was interrupted.
    sizes = [path.stat().st_size for path in paths]
    (folder / FACTS).write_text(json.dumps({"form": dataclasses.asdict(form), "sizes": sizes}) + "\n")
    return paths


def is_there(folder: Path, count: int, form: Form) -> bool:
    """Whether `folder` has these files already, whole."""
    try:
        known = json.loads((folder / FACTS).read_text())
    except FileNotFoundError:
        return False
    if known["form"] != dataclasses.asdict(form) or len(known["sizes"]) < count:
        return False
    sizes = [path.stat().st_size if path.exists() else None for path in _paths(folder, count)]
    return sizes == list(known["sizes"][:count])


def _paths(folder: Path, count: int) -> list[Path]:
    return [folder / f"scale-{number:05}.pcap" for number in range(count)]


def _write(paths: list[Path], base: Base, limit: int) -> None:
    if limit < len(HEADER) + len(base.preamble) + int(np.diff(base.places).max()):
        raise ValueError(f"a file of {limit} bytes has no room for the handshakes and a packet")
    every = copies(base)
    data, begin = next(every).data, 0
    for place, path in enumerate(paths):
        with path.open("wb") as out:
            out.write(HEADER)
            if place == 0:
                out.write(base.preamble)
            room = limit - out.tell()
            while True:
                # The last border between packets that still fits.
                end = int(base.places[np.searchsorted(base.places, begin + room, side="right") - 1])
                out.write(data[begin:end])
                room -= end - begin
                begin = end
                if end < len(data):
                    break
                data, begin = next(every).data, 0
