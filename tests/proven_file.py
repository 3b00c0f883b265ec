"""`dissectors/proven.txt`: pairs proven with bytes that this project did not produce. Two tools each write a part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.golden import ROOT

PROVEN_FILE = ROOT / "dissectors" / "proven.txt"

_HEAD = """\
# What was decoded from bytes that this project did not make to values that it did not make. A line is
# NAME VERSION vectors RELEASE…         request and response of that version of an API, as Kafka's classes of that
#                                       release wrote them
# NAME VERSION captures RELEASE FILE…   the same, as real clients and brokers sent them; in these files of captures/
#                                       Kafka's classes of that release read the same
# `data NAME VERSION …` is the same of a header or of what lies inside records and bytes, `batches MAGIC …` of record
# batches (magic 2) and message sets (0 and 1).

"""


class Part(NamedTuple):
    """The lines between two comments. Each ends with a line feed, as all lines of the file."""

    begin: str
    end: str

    def lines(self, text: str) -> list[str] | None:
        """The part's lines in the file's content; None if the file has no such part."""
        if self.begin not in text:
            return None
        return text.split(self.begin)[1].split(self.end, maxsplit=1)[0].splitlines()

    def merged(self, text: str, lines: Iterable[str]) -> str:
        """The file's content `text` with `lines` as this part, appended if there was none. The rest stays unchanged."""
        new = self.begin + "".join(line + "\n" for line in lines) + self.end
        before, begin, rest = (text or _HEAD).partition(self.begin)
        return before + new + (rest.partition(self.end)[2] if begin else "")
