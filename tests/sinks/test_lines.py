from __future__ import annotations

from kafkasniff.sinks.lines import BLOCK_BYTES, LineWriter


class Stream:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.flushes = 0

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def flush(self) -> None:
        self.flushes += 1


def test_lines_are_written_in_blocks_and_whole() -> None:
    stream = Stream()
    writer = LineWriter(stream)
    line = b"x" * 999 + b"\n"
    for _ in range(100):
        writer.add(line)
    assert len(stream.writes) == 1
    assert len(stream.writes[0]) >= BLOCK_BYTES
    writer.flush()
    assert b"".join(stream.writes) == line * 100
    assert all(block.endswith(b"\n") for block in stream.writes)


def test_live_lines_go_out_at_once() -> None:
    stream = Stream()
    writer = LineWriter(stream, live=True)
    writer.add(b"a\n")
    writer.add(b"b\n")
    assert stream.writes == [b"a\n", b"b\n"]
    assert stream.flushes == 2


def test_a_failing_stream_is_not_given_the_same_lines_again() -> None:
    class Full(Stream):
        def write(self, data: bytes) -> None:
            super().write(data)
            raise OSError(28, "No space left on device")

    stream = Full()
    writer = LineWriter(stream)
    writer.add(b"a\n")
    for _ in range(2):
        try:
            writer.flush()
        except OSError:
            continue
    assert stream.writes == [b"a\n"]
