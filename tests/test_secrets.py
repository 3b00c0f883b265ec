"""By default no output contains a secret in any form; with --show-secrets each one appears, so that the test can fail.
Not checked: files of `live --write` and `state/` of an export (docs/privacy.md)."""

from __future__ import annotations

import functools
import re
import stat
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis import question_names
from kafkasniff.cli.environment import Exit
from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Exchange, Message
from kafkasniff.sinks.hex_view import HexView
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.text.printable import PLAIN
from tests.choice import ALL, examples, one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.damage import lossy
from tests.craft.write import write_pcap
from tests.outputs import content, watched
from tests.secret_traffic import FORMS, TEXTS, Case, capture, cases, found_in

CASES = cases()
HIDDEN = DecodeOptions()
EVERY = set(TEXTS)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pcap(tmp_path_factory.mktemp("secrets") / "secrets.pcap", capture(), nanoseconds=True)


def export(path: Path, folder: Path, *options: str) -> Path:
    assert kafkasniff("export", path, "--output", folder, *options).code == Exit.OK
    return folder


@pytest.fixture(scope="module")
def exported(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(path, tmp_path_factory.mktemp("export") / "out", "--records")


def test_secrets_are_found_in_any_form() -> None:
    """The premise of the other tests."""
    for name, secret in TEXTS.items():
        assert found_in(b"x" + secret + b"y") == {name}
        assert found_in(repr({"value": secret}).encode()) == {name}
        assert found_in(secret.hex().encode()) == {name}
        assert all(len(form) > 12 for form in FORMS[name])


# -- commands ----------------------------------------------------------------------------------------------------------

SHOWN = [["--format", "json", *form] for form in ([], ["--bytes", "base64"], ["--bytes", "hex"])]
DECODE = [*SHOWN, ["-vv", "--color", "always"], [], ["--two-pass", "-vv"], ["-x"], ["-xx", "--color", "always"],
          ["-xx", "-v", "--slower-than", "0ms"], ["-xx", "--no-payload"]]  # fmt: skip


def unrolled(dump: str) -> bytes:
    """The bytes of a hexdump's rows in hex, one after the other: a secret may span rows."""
    rows = re.findall(r"^ {4}\+*[0-9a-f]{4,8}  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", dump, re.MULTILINE)
    return "".join(rows).replace(" ", "").encode()


@pytest.mark.parametrize(
    "options", [*DECODE, pytest.param(["--format", "json", "--jobs", "2"], marks=pytest.mark.extended)], ids=" ".join
)
def test_decode(path: Path, options: list[str]) -> None:
    result = kafkasniff("decode", *options, path)
    assert result.code == Exit.OK
    assert result.out
    assert unrolled(result.text) or "-xx" not in options or "always" in options
    assert found_in(result.out) | found_in(result.err.encode()) | found_in(unrolled(result.text)) == set()


def test_secrets_shown(path: Path) -> None:
    for options in SHOWN:
        assert found_in(kafkasniff("decode", *options, "--show-secrets", path).out) == EVERY, options
    assert found_in(unrolled(kafkasniff("decode", "-xx", "--show-secrets", path).text)) == EVERY


def test_other_values_are_still_there(path: Path) -> None:
    out = kafkasniff("decode", "--format", "json", path).out
    values = (b"86400000", b"AbCdEf0123456789", b'"algorithm":"HmacSHA256"', b'"tasks.max":"1"', b'{\\"tasks\\":1}')
    assert [value for value in values if value not in out] == []
    assert b"body-withheld" not in out


def test_an_internal_error_shows_no_secret(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonSink, "line", lambda self, event: 1 / 0)
    result = kafkasniff("decode", "-v", "--format", "json", path)
    assert result.code == Exit.INTERNAL
    assert "Traceback" in result.err
    assert found_in(result.err.encode()) == set()


def test_export(exported: Path, path: Path, tmp_path: Path) -> None:
    assert found_in(content(exported)) == set()
    assert found_in(content(export(path, tmp_path / "columns"))) == set()
    # No table has raw tokens, and only bodies have records of the metadata log.
    shown = found_in(content(export(path, tmp_path / "shown", "--show-secrets")))
    assert EVERY - shown == {"raw plain password", "raw client proof"}


def test_a_record_without_its_secret_value_is_still_a_row(exported: Path) -> None:
    rows = [row for one in exported.glob("records/*/*.parquet") for row in pq.ParquetFile(one).read().to_pylist()]
    by_key = {row["key"]: row["value"] for row in rows if row["key"] is not None}
    assert by_key[b"session-key"] is by_key[b"connector-jdbc"] is by_key[b"task-jdbc-0"] is None
    assert by_key[b"commit-jdbc"] == b'{"tasks":1}'


def test_answers(path: Path, exported: Path) -> None:
    questions = one_in(4, question_names(), 1)
    commands = [["security", path], *(["analyze", question, exported] for question in questions)]
    for command in commands:
        for form in ("text", "json"):
            result = kafkasniff(*command, "--format", form)
            assert result.code == Exit.OK, command
            assert found_in(result.out + result.err.encode()) == set(), command


def pasted(case: Case, *options: str) -> bytes:
    arguments = ["decode-bytes", *options]
    if case.in_response:
        arguments += ["--response", "--api", str(case.api_key), "--version", str(case.version)]
    result = kafkasniff(*arguments, (case.response if case.in_response else case.request).hex())
    assert result.code == Exit.OK
    return result.out + result.err.encode()


def indented(dump: bytes) -> str:
    """As `decode` shows it."""
    return "".join(f"    {line}\n" for line in dump.decode().splitlines())


@pytest.mark.parametrize("case", one_in(3, CASES), ids=lambda case: case.name)
def test_decode_bytes(case: Case) -> None:
    assert found_in(pasted(case, "-v")) == set()
    assert found_in(pasted(case, "--format", "json")) == set()
    assert found_in(unrolled(indented(pasted(case, "-x")))) == set()
    assert found_in(unrolled(indented(pasted(case, "-x", "--show-secrets")))) == case.secrets
    assert found_in(pasted(case, "--format", "json", "--show-secrets")) == case.secrets


def test_views_of_a_live_run() -> None:
    for text in watched(capture()):
        assert "SaslAuthenticate" in text
        assert found_in(text.encode()) == set()


def test_captures_with_known_secrets(tmp_path: Path) -> None:
    """The session key made by a Connect worker; the tests of sidecars check passwords."""
    name = ROOT / "captures" / "java-connect.pcap"
    key = b"PuxOL3kPqJ+t0rxGpQZmM0MkoMZ5dualNwrmX2P4aX8="
    out = kafkasniff("decode", "--format", "json", name).out
    assert key not in out
    assert key in kafkasniff("decode", "--format", "json", "--show-secrets", name).out
    assert key not in content(export(name, tmp_path / "out", "--records"))
    assert b'"name":"line-source"' in content(tmp_path / "out").replace(b"\\", b"")


# -- damaged messages --------------------------------------------------------------------------------------------------


def decoded(case: Case, data: bytes, *, cut: bool = False) -> Decoded:
    if case.in_response:
        return decode_response(data, 0, len(data), case.api_key, case.version, HIDDEN, cut=cut)
    return decode_request(data, 0, len(data), HIDDEN, cut=cut)


def shown(case: Case, data: bytes, *, cut: bool = False) -> bytes:
    return repr(decoded(case, data, cut=cut)).encode()


def dumped(case: Case, data: bytes, *, cut: bool = False) -> bytes:
    """The bytes in its hexdump."""
    found = decoded(case, data, cut=cut)
    fields = {name: getattr(found, name) for name in found.__struct_fields__ if name in Message.__struct_fields__}
    made = msgspec.structs.replace(Message("response" if case.in_response else "request", len(data) + cut), **fields)
    lines = list(HexView(PLAIN, whole=True, secrets=False).lines(made, data, "    "))
    assert found_in("".join(lines).encode()) == set()
    return unrolled("\n".join(lines))


def message(case: Case) -> bytes:
    return (case.response if case.in_response else case.request)[4:]


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


# Any byte of a compressed batch may end in a name that identifies a secret.
DAMAGED = [case for case in CASES if not case.name.startswith("connect produced") or case.name.endswith(" 0")]
# The field that marks a secret: with another name it is not a secret, even in a valid message.
NAMES = [
    b"ssl.keystore.password", b"sasl.jaas.config", b"ssl.keystore.key", b"ssl.key.password", b"my.secret",
    b"ssl.truststore.password", b"PlainLoginModule required username", b"password=", b"__cluster_metadata",
    bytes(15) + b"\x01", b"session-key", b"connector-jdbc", b"task-jdbc-0", b'"properties"',
    b"connection.password", b"database.password", b"jdbc:postgresql://app:", b"@db/x",
    TEXTS["sensitive by flag"] + b"\0\0\x01",  # read_only, config_source, is_sensitive
]  # fmt: skip


@functools.cache
def places(case: Case) -> list[int]:
    """Bytes that can be damaged: all after the header except those that identify a secret."""
    data = message(case)
    # Correlation id; in a request also API, version and client id.
    start = 4 if case.in_response else 8 + 2 + len("crafted")
    left = set(range(start, len(data)))
    for name in NAMES:
        at = data.find(name)
        while at >= 0:
            left -= set(range(at, at + len(name)))
            at = data.find(name, at + 1)
    return sorted(left)


@given(st.sampled_from(CASES), st.data())
def test_truncated_messages(case: Case, data: st.DataObject) -> None:
    whole = message(case)
    kept = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    assert found_in(shown(case, whole[:kept], cut=cut)) == set()
    assert found_in(dumped(case, whole[:kept], cut=cut)) == set()


@given(st.sampled_from(DAMAGED), st.data(), st.integers(1, 255))
@examples(120)
def test_messages_with_a_wrong_byte(case: Case, data: st.DataObject, mask: int) -> None:
    damaged = bytearray(message(case))
    damaged[data.draw(st.sampled_from(places(case)))] ^= mask
    assert found_in(shown(case, bytes(damaged))) == set()
    assert found_in(dumped(case, bytes(damaged))) == set()


def test_a_secret_that_is_read_as_a_tag_of_the_header() -> None:
    case = named("token expired v2")
    damaged = bytearray(message(case))
    # The number of tagged fields, after the client id.
    assert damaged[10:18] == b"crafted\0"
    damaged[17] = 1
    assert found_in(shown(case, bytes(damaged))) == set()
    assert found_in(dumped(case, bytes(damaged))) == set()
    assert found_in(dumped(case, message(case))) == set()


def test_a_misread_body_shows_only_its_numbers() -> None:
    case = named("server-final v2")
    damaged = bytearray(message(case))
    # Correlation id, header tags, error code; then the length of error_message: null becomes 20 bytes.
    assert damaged[7] == 0
    damaged[7] = 21
    reported = decoded(case, bytes(damaged))
    assert set(reported.body) <= {"error_code", "session_lifetime_ms"}
    assert "body-withheld" in {problem.kind for problem in reported.problems}
    assert b"v=" not in shown(case, bytes(damaged))


def test_a_truncated_body_keeps_its_names() -> None:
    case = named("topic created v7")
    data = message(case)[:-8]
    assert decoded(case, data, cut=True).body["topics"][0]["name"] == "orders"
    assert decoded(case, data).body == {}


@given(st.integers(0, 1 << 32))
@examples(20)
def test_showing_secrets_changes_nothing_else(seed: int) -> None:
    """Which messages there are, their pairing, and how exchanges end."""
    packets = lossy(capture(), Random(seed), 0.1)
    seen = []
    for show_secrets in (False, True):
        inspector = Inspector(exchanges=True, show_secrets=show_secrets)
        events = [*inspector.feed(batch(packets)), *inspector.close()]
        seen.append([_outline(event) for event in events])
    assert seen[0] == seen[1]


def _outline(event: Any) -> tuple[Any, ...]:
    if isinstance(event, Message):
        kinds = sorted({problem.kind for problem in event.problems} - {"body-withheld"})
        return event.type, event.exchange, event.api_key, event.correlation_id, event.time_ns, event.errors, kinds
    if isinstance(event, Exchange):
        return event.exchange, event.status, event.latency_ns
    return type(event), getattr(event, "kind", None)


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_are_private(path: Path, exported: Path, tmp_path: Path) -> None:
    for number, arguments in enumerate(
        (["decode", path], ["decode-bytes", CASES[0].request.hex()], ["analyze", "latency", exported])
    ):
        assert kafkasniff(*arguments, "-o", tmp_path / f"{number}.out").code == Exit.OK
    assert kafkasniff("analyze", "latency", exported, "-o", tmp_path / "answer.parquet").code == Exit.OK
    if ALL:
        export(path, tmp_path / "jobs", "--jobs", "2")
    made = [one for folder in (tmp_path, exported) for one in folder.rglob("*") if one.is_file()]
    assert {one.suffix for one in made} == {".out", ".parquet", ".json", ".state"}
    assert {stat.S_IMODE(one.stat().st_mode) for one in made} == {0o600}
