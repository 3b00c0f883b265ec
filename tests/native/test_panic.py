"""A failed check of the kernel ends the process with a line: alone, in a worker, in a live capture with an export."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.native.streams import StreamEngine
from kafkasniff.packets import PacketBatch
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.tables.exports.exported import rows

CAPTURES = ROOT / "captures"


def break_from(packet: int) -> None:
    """Let the kernel fail at a batch with this packet: it checks that a payload is in the buffer."""
    take = StreamEngine.take

    def breaks(engine: StreamEngine, batch: PacketBatch, **named: Any) -> Any:
        if len(batch) and batch.number[-1] >= packet:
            batch.offset = batch.offset + (1 << 40)
        return take(engine, batch, **named)

    pytest.MonkeyPatch().setattr(StreamEngine, "take", breaks)


LINE = "internal error of the native kernel: "


def ended(code: str, packet: int, *arguments: object) -> tuple[int, str]:
    """Exit code and stderr of Python with this code, whose kernel fails at a batch with this packet."""
    text = f"from tests.native.test_panic import break_from\nbreak_from({packet})\n" + textwrap.dedent(code)
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


COMMAND = """
    import sys
    from kafkasniff.cli.main import main
    if __name__ == "__main__":
        sys.exit(main())
"""


def test_a_command_says_what_it_was_reading() -> None:
    code, said = ended(COMMAND, 1, "decode", "-q", CAPTURES / "java-codecs.pcap")
    assert code == 70
    (line,) = said.splitlines()
    assert line.startswith(f"kafkasniff: {LINE}")
    assert "at packets 1 to " in line
    assert line.endswith("java-codecs.pcap; please report it")


def test_it_fails_in_its_batch() -> None:
    code = """
        import sys
        from kafkasniff.engine.inspector import Inspector
        from tests.craft.batches import batch
        from tests.craft.samples import mixed
        inspector = Inspector()
        print(len(inspector.feed(batch(mixed()[:40]))), file=sys.stderr, flush=True)
        inspector.feed(batch(mixed()[:41]))
    """
    number, said = ended(code, 41)
    assert number == 70
    count, line = said.splitlines()
    assert int(count) > 10
    assert "at packets 1 to 41 of crafted" in line


WORKERS = """
    import sys
    from kafkasniff.runtime.worker_processes import Workers
    from tests.native.test_panic import fails
    if __name__ == "__main__":
        with Workers(fails, [1, 2]) as workers:
            try:
                for _ in range(9):
                    list(workers.messages(60))
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
"""


def fails(_: int, end: object) -> None:
    """The work of a worker whose kernel fails."""
    break_from(1)
    Inspector().feed(batch(mixed()))


@pytest.mark.extended
def test_a_worker_says_it_to_the_first_process() -> None:
    code, said = ended(WORKERS, 1)
    assert (code, said.count("\n")) == (0, 1)
    assert said.startswith(f"KafkasniffError: {LINE}")
    assert "of crafted" in said


LIVE = """
    import sys
    from pathlib import Path
    from kafkasniff.tables.exports.live import LiveExport
    from kafkasniff.tables.exports.options import ExportOptions
    from tests.craft.batches import batch
    from tests.craft.samples import mixed
    if __name__ == "__main__":
        packets = mixed()
        with LiveExport(sys.argv[1], ExportOptions(), "eth7", every_seconds=0) as export:
            for end in range(60, len(packets), 60):
                export.feed(batch(packets[end - 60 : end], range(end - 60, end)))
                if export._making is not None:
                    export._commit_made(*export._making)
"""


@pytest.mark.extended
def test_committed_rows_of_a_live_capture_stay(tmp_path: Path) -> None:
    code, said = ended(LIVE, 121, tmp_path / "out")
    assert code == 70
    assert said.splitlines()[-1].startswith(f"kafkasniff: {LINE}")
    before = rows(tmp_path / "out", "exchanges")
    assert before
    code, said = ended(LIVE, 1 << 40, tmp_path / "out")
    assert (code, said) == (0, "")
    after = rows(tmp_path / "out", "exchanges")
    assert len(after) > len(before)
    assert [row for row in before if row not in after] == []
