"""The explorer ends when its terminal is gone, as when an ssh connection ends.

Textual writes in a thread. An error of writing ends only that thread, and what it no longer takes then blocks the
explorer for good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import IO, Any

from textual.driver import Driver


class LosableTerminal:
    """A terminal that discards everything once writing has failed. `lost` is called then, in the writing thread."""

    def __init__(self, file: IO[str], lost: Callable[[], object]) -> None:
        self._file = file
        self._lost = lost
        self._is_lost = threading.Event()

    def write(self, text: str) -> int:
        """Write, or discard."""
        if not self._is_lost.is_set():
            self._guard(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, or discard."""
        if not self._is_lost.is_set():
            self._guard(self._file.flush)

    def _guard(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError:
            self._is_lost.set()
            self._lost()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def outliving(driver: type[Driver], lost: Callable[[], object]) -> type[Driver]:
    """A driver whose writing thread outlives the terminal; those that write in other ways are not changed.

    SIGCONT, which also follows the loss of a terminal, resumes only what SIGTSTP has suspended. Otherwise, Textual
    would begin twice, and would neither end nor restore the terminal.
    """

    class OutlivingDriver(driver):  # type: ignore[misc, valid-type]  # its class is chosen at run time
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            file = getattr(self, "_file", None)
            if file is not None:
                self._file = LosableTerminal(file, lost)

        def _sigcont_application(self, *arguments: Any) -> None:
            if self._must_signal_resume:
                super()._sigcont_application(*arguments)
            else:
                self._app.call_later(self._app.refresh)

    return OutlivingDriver
