"""Forms to copy: they say what `decode` says of the same exchange, and no secrets."""

from __future__ import annotations

import json
import shlex

import pytest

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.copying import copies
from kafkasniff.browse.index import Row
from kafkasniff.model import Exchange
from tests.browse.opened import found, path_of
from tests.cli.console import kafkasniff


def texts_of(name: str, api: str, error: str = "") -> tuple[Exchange, Row, dict[str, str]]:
    exchange, row = found(name, api, error)
    return exchange, row, {one.title: one.make() for one in copies(exchange, row, Commands((str(path_of(name)),)))}


def run(command: str, *more: str) -> str:
    name, *arguments = shlex.split(command)
    assert name == "kafkasniff"
    done = kafkasniff(*arguments, *more)
    assert done.code == 0, done.err
    return done.text


@pytest.mark.parametrize(
    ("name", "api", "error"),
    [
        ("java-errors", "Produce", "MESSAGE_TOO_LARGE"),
        ("java-transactions", "Fetch", ""),
        ("java-0.10.2", "Fetch", ""),
        ("java-errors", "ApiVersions", ""),
    ],
)
def test_commands_show_the_exchange(name: str, api: str, error: str) -> None:
    exchange, row, texts = texts_of(name, api, error)
    assert list(texts) == [
        "JSON",
        "request in hex",
        "request as a decode-bytes command",
        "response in hex",
        "response as a decode-bytes command",
        "decode command",
    ]
    lines = [json.loads(line) for line in texts["JSON"].splitlines()]
    others = [json.loads(line) for line in run(texts["decode command"], "--format", "json").splitlines()]
    assert {one.pop("exchange") for one in lines} == {None}
    assert len({one.pop("exchange") for one in others}) == 1
    assert lines == others
    for message in (exchange.request, exchange.response):
        assert message is not None
        assert bytes.fromhex(texts[f"{message.type} in hex"]) == message.frame
        shown = json.loads(run(texts[f"{message.type} as a decode-bytes command"], "--format", "json"))
        line = next(one for one in lines if one["type"] == message.type)
        for key in ("size", "correlation_id", "problems"):
            assert shown[key] == line[key]
        names = set(shown["body"]) - {key for key in shown["body"] if key.startswith("_")}
        assert {key for key in line["body"] if not key.startswith("_")} == names
    assert row.connection == lines[0]["connection"]


def test_secrets_are_blank() -> None:
    for api in ("SaslAuthenticate", "SaslHandshake"):
        _, _, texts = texts_of("java-sasl", api)
        for text in texts.values():
            assert "alice-secret" not in text
            assert b"alice-secret".hex() not in text
    exchange, _, texts = texts_of("java-sasl", "SaslAuthenticate")
    assert exchange.request is not None
    assert exchange.request.frame is not None
    assert b"alice-secret" in exchange.request.frame
    assert len(texts["request in hex"]) == 2 * exchange.request.size
    assert "SaslAuthenticate" in run(texts["request as a decode-bytes command"])
