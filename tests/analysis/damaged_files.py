"""Read a small export once per damaged byte of its file, in a process of its own, which Arrow may crash.

python -m tests.analysis.damaged_files FOLDER FIRST STEP VALUES

The file is `PATH` in FOLDER. Every STEP-th byte from FIRST on is replaced by VALUES other values in turn. The position
and value of the current damage are in the file `now`. Prints how often the file yielded rows and how often it was
refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafkasniff.analysis import TableReading
from kafkasniff.analysis.export import Export
from kafkasniff.errors import CaptureError, UsageError

PATH = "exchanges/date=2026-11-21/part-00001-00000.parquet"
COLUMNS = ("time_ns", "api", "topics")
WRONG = (0x00, 0xFF, 0x01, 0x80, 0x7F, 0x15, 0x4C, 0x1C, 0x19, 0x10, 0x29, 0x18, 0x02, 0xFE, 0xF0, 0x0F)


def read_all(export: Export) -> None:
    """Read all rows, then some by API and time, then the earliest time."""
    for apis, since, until in ((None, None, None), (["Fetch"], 1, 1 << 62)):
        for batch in export.batches("exchanges", TableReading(COLUMNS, apis), since, until):
            batch.to_pylist()
    export.start_ns()


def main(folder: Path, first: int, step: int, values: int) -> None:
    """Run the module as its docstring describes."""
    whole = (folder / PATH).read_bytes()
    read = refused = 0
    with (folder / "now").open("w") as now:
        for place in range(first, len(whole), step):
            for wrong in WRONG[:values]:
                now.seek(0)
                now.write(f"{place:8} {wrong:4}\n")
                now.flush()
                (folder / PATH).write_bytes(whole[:place] + bytes([wrong]) + whole[place + 1 :])
                try:
                    read_all(Export.open(str(folder)))
                    read += 1
                except (CaptureError, UsageError):
                    refused += 1
    (folder / PATH).write_bytes(whole)
    print(read, refused)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
