"""A terminal that is lost while the explorer writes to it."""

from __future__ import annotations

import io

from kafkasniff.browse.screen.lost_terminal import LosableTerminal


class Terminal(io.StringIO):
    is_gone = False

    def write(self, text: str) -> int:
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_what_is_written_to_a_lost_terminal_is_discarded() -> None:
    file, lost = Terminal(), []
    terminal = LosableTerminal(file, lambda: lost.append(1))
    assert terminal.write("shown") == 5
    terminal.flush()
    file.is_gone = True
    for _ in range(3):
        assert terminal.write("not shown") == 9
        terminal.flush()
    file.is_gone = False
    terminal.write("neither")
    assert (file.getvalue(), lost) == ("shown", [1])
    assert terminal.encoding == file.encoding
