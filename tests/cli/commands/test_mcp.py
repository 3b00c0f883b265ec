"""`kafkasniff mcp`, asked by the client of the official SDK."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.running.tool_answers import ToolAnswers
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CODECS = str(ROOT / "captures" / "librdkafka-codecs.pcap")
PROGRAM = [sys.executable, "-m", "kafkasniff", "mcp"]

pytestmark = pytest.mark.extended


def asked(transport: Any) -> tuple[dict[str, Any], list[Any]]:
    """The tools of a server, and its answers to a right and to a wrong question."""
    anyio, client = pytest.importorskip("anyio"), pytest.importorskip("mcp").Client

    async def ask() -> Any:
        async with client(transport) as one:
            tools = {tool.name: tool for tool in (await one.list_tools()).tools}
            questions = ({"exchange": 9}, {"exchange": 99999}, {"exchange": "x"})
            return tools, [await one.call_tool("timing", question) for question in questions]

    tools, answers = anyio.run(ask)
    return tools, [(one.is_error, one.content[0].text) for one in answers]


def check(tools: dict[str, Any], answers: list[Any]) -> None:
    assert {*tools} == {"overview", "findings", "exchanges", "timing", "follow", "sql", "protocol"}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools.values())
    assert answers[0] == (False, kafkasniff("timing", "-q", "--format", "json", "--exchange", 9, CODECS).text)
    assert answers[1] == (False, "no exchange matches exchange 99999; exchanges: 1 to 55")
    assert answers[2][0]


def test_stdio() -> None:
    pytest.importorskip("mcp")
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    words = [*PROGRAM[1:], CODECS]
    check(*asked(stdio_client(StdioServerParameters(command=PROGRAM[0], args=words, env=dict(os.environ)))))


@pytest.mark.extended
def test_http_needs_the_token(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    token = tmp_path / "token"
    token.write_text("let-me-in\n")
    words = [*PROGRAM, "--http", ":0", "--token-file", str(token), CODECS]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        url = process.stderr.readline().split()[-1]
        try:
            for given in ("", "Bearer wrong", "let-me-in"):
                request = urllib.request.Request(url, b"{}", {"Authorization": given})
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(request)
                assert refused.value.code == 401
            client = create_mcp_http_client(headers={"Authorization": "Bearer let-me-in"})
            check(*asked(streamable_http_client(url, http_client=client)))
        finally:
            process.terminate()
        assert process.wait() == Exit.SIGTERM


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--http", ":0", CODECS), "--http and --token-file must be given together"),
        (("-",), "mcp reads captures again for each question"),
        (("tables",), "tables may have keys and values: export with --no-payload, or give --show-payload"),
    ],
)
def test_misuse(options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    monkeypatch.chdir(tmp_path)
    if "tables" in options:
        assert kafkasniff("export", "-q", CODECS, "-o", "tables").code == Exit.OK
    done = kafkasniff("mcp", *options)
    assert done.code == Exit.USAGE
    assert message in done.err


@pytest.mark.extended
def test_transcripts_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "mcp.md").read_text().partition("## What a model asks")[2]
    questions = re.findall(r"```json\n(.*?)```\n\n```json\n(.*?)```", text, re.S)
    assert len(questions) == 3
    with ToolAnswers(["captures/java-errors.pcap"], [], [], payload=False) as answers:
        for question, shown in questions:
            call = json.loads(question)
            assert getattr(answers, call["name"])(**call["arguments"]) == shown
