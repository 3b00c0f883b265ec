"""A format needs only its entry."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from typing import Any

import click
import pytest

from kafkasniff.cli.options import option_groups
from kafkasniff.model import Lines, Message
from kafkasniff.redact.payload import SHOWN
from kafkasniff.sinks.formats import FORMATS, Format, SinkSettings
from kafkasniff.sinks.lines import ByteOutput
from tests.cli.console import kafkasniff
from tests.conftest import ROOT


class Sizes:
    """A format that this project does not have: one number per message."""

    def __init__(self, stream: ByteOutput) -> None:
        self.stream = stream

    def write(self, event: Any) -> None:
        if isinstance(event, Message):
            self.stream.write(b"%d\n" % event.size)

    def write_lines(self, lines: Lines) -> None:
        raise AssertionError("nothing makes lines of this format")

    def flush(self) -> None:
        self.stream.flush()

    def close(self) -> None:
        self.stream.flush()


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("more", [[], ["--filter", 'api == "Produce"']])
def test_a_new_format(jobs: str, more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It works with --jobs and filters, although nothing else knows of it."""
    monkeypatch.setitem(FORMATS, "sizes", Format("sizes", lambda stream, _settings: Sizes(stream)))
    # The option's choices are fixed on import.
    command = click.command()(option_groups.output_options(lambda **_options: None))
    assert "[text|json|csv|sizes]" in command.get_help(click.Context(command)).replace("\n", "")
    path = ROOT / "captures" / "librdkafka-codecs.pcap"
    monkeypatch.undo()
    lines = kafkasniff("decode", "--format", "json", *more, path).objects
    sizes = [line["size"] for line in lines if line["type"] in {"request", "response"}]
    monkeypatch.setitem(FORMATS, "text", Format("sizes", lambda stream, _settings: Sizes(stream)))
    found = kafkasniff("decode", "--jobs", jobs, *more, path).text
    assert found.split() == [str(size) for size in sizes]


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_opens_and_closes(name: str) -> None:
    stream = BytesIO()
    sink = FORMATS[name].open(stream, SinkSettings(SHOWN))
    sink.flush()
    sink.close()
    assert stream.getvalue().count(b"\n") == (name == "csv")


def test_help_imports_no_sink() -> None:
    program = "import sys, kafkasniff.sinks.formats; print(sorted(set(sys.modules) & {'orjson', 'numpy', 'rich'}))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"
