from __future__ import annotations

from kafkasniff.sinks.lines import BLOCK_BYTES, LineWriter, TextWriter, joined


class Stream:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.flushes = 0

    def write(self, data: bytes | memoryview) -> None:
        self.writes.append(bytes(data))

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


def test_a_line_of_a_block_or_more_is_written_by_itself() -> None:
    stream = Stream()
    writer = LineWriter(stream)
    small, large = b"x\n", bytes(BLOCK_BYTES)
    for line in (small, small, large, small):
        writer.add(line)
    writer.flush()
    assert stream.writes == [small + small, large, small]


def test_a_view_is_written_before_its_memory_is_used_again() -> None:
    stream = Stream()
    writer = LineWriter(stream)
    memory = bytearray(b"first\n")
    writer.add(b"before\n")
    writer.add(memoryview(memory))
    memory[:] = b"again\n"
    writer.add(b"after\n")
    writer.flush()
    assert b"".join(stream.writes) == b"before\nfirst\nafter\n"


class Full(Stream):
    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        raise OSError(28, "No space left on device")


def test_text_is_encoded_in_blocks_and_whole() -> None:
    stream = Stream()
    writer = TextWriter(stream)
    line = "→" * 499
    for _ in range(200):
        writer.add(line)
    assert len(stream.writes) == 1
    writer.flush()
    assert b"".join(stream.writes) == f"{line}\n".encode() * 200
    assert all(block.endswith(b"\n") for block in stream.writes)
    writer.flush()
    assert len(stream.writes) == 2
    assert stream.flushes == 3


def test_what_an_encoding_has_no_bytes_for_is_escaped() -> None:
    stream = Stream()
    writer = TextWriter(stream, encoding="latin-1")
    writer.add("µ→")
    writer.add("\udcff")
    writer.flush()
    assert stream.writes == [b"\xb5\\u2192\n\\udcff\n"]


def test_a_failing_stream_does_not_get_the_same_text_twice() -> None:
    stream = Full()
    writer = TextWriter(stream)
    writer.add("a")
    for _ in range(2):
        try:
            writer.flush()
        except OSError:
            continue
    assert stream.writes == [b"a\n"]


def test_a_failing_stream_does_not_get_the_same_lines_twice() -> None:
    stream = Full()
    writer = LineWriter(stream)
    writer.add(b"a\n")
    for _ in range(2):
        try:
            writer.flush()
        except OSError:
            continue
    assert stream.writes == [b"a\n"]


def test_parts_are_joined_into_pieces() -> None:
    assert list(joined(["a", "bc", "def", "", "g"], "\n", 3)) == ["a\nbc", "def", "\ng"]
    assert list(joined([b"a", b"bc"], b"", 1)) == [b"a", b"bc"]
    assert list(joined(iter(()), "\n", 3)) == []
    parts = iter([b"ab", b"c"])
    # Parts are taken when their piece is wanted.
    assert next(joined(parts, b"", 2)) == b"ab"
    assert list(parts) == [b"c"]
