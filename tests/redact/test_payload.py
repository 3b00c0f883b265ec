"""--no-payload and --hash-payload: nothing of keys, values and header values is left, and all else stands as it was."""

from __future__ import annotations

import json
import pickle
import stat
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from kafkasniff import decode_request as decode_request_of
from kafkasniff.cli.environment import Exit
from kafkasniff.redact.payload import HASH_BYTES, Payload
from kafkasniff.tables.exports.options import ExportOptions
from tests.cli.console import Result, kafkasniff
from tests.cli.wire import Wire
from tests.conftest import ROOT
from tests.craft.conversation import Conversation
from tests.craft.write import write_pcap
from tests.evidence.decoded import objects
from tests.secret_traffic import forms
from tests.tables.exports.exported import rows, tables
from tests.test_secrets import content

CODECS = ROOT / "captures" / "java-codecs.pcap"
INTERNAL = ROOT / "captures" / "java-internal-topics.pcap"
SCHEMAS = ROOT / "captures" / "librdkafka-schemas.pcap"
OLD = ROOT / "captures" / "old-message-formats.pcap"
SALT = Payload.hashed(b"a salt for tests")


@pytest.fixture
def salt(tmp_path: Path) -> Path:
    path = tmp_path / "salt"
    path.write_bytes(bytes(range(32)))
    return path


def records(value: Any) -> list[dict[str, Any]]:
    """All records in a line or a body, wherever they are."""
    batches = (batch for one in objects(value) for batch in one.get("batches") or ())
    return [record for batch in batches for record in batch.get("records", ())]


def decode(path: Path, *options: object) -> Result:
    result = kafkasniff("decode", "--quiet", *options, path)
    assert result.code == Exit.OK
    return result


def export(path: Path, folder: Path, *options: object) -> Path:
    result = kafkasniff("export", path, "--output", folder, *options)
    assert result.code == Exit.OK, result.err
    return folder


def test_replacements_of_payload_in_json() -> None:
    shown, hidden = (decode(CODECS, "--format", "json", *options).objects for options in ((), ("--no-payload",)))
    assert len(shown) == len(hidden)
    seen = set()
    for one, other in zip(shown, hidden, strict=True):
        for before, after in zip(records(one), records(other), strict=True):
            for field in ("key", "value"):
                size = _size(before[field])
                assert after[field] == (None if size is None else {"length": size})
                seen.add(None if size is None else size > 0)
            assert [header["key"] for header in before["headers"]] == [header["key"] for header in after["headers"]]
            for header, left in zip(before["headers"], after["headers"], strict=True):
                size = _size(header["value"])
                assert left["value"] == (None if size is None else {"length": size})
            # All else is as it was.
            for record in (before, after):
                for field in ("key", "value", "headers"):
                    del record[field]
        assert one == other
    # Null, empty and others.
    assert seen == {None, False, True}


def _size(value: Any) -> int | None:
    """Bytes of a value as a JSON line has it."""
    if isinstance(value, dict):
        text = value["base64"]
        return len(text) // 4 * 3 - text.count("=")
    return None if value is None else len(value.encode())


def test_equal_values_have_equal_hashes_in_all_outputs(tmp_path: Path, salt: Path) -> None:
    options = ("--hash-payload", "--hash-salt", salt)
    plain, hashed = (records(decode(CODECS, "--format", "json", *more).objects) for more in ((), options))
    pairs = {
        (json.dumps(before[field]), after[field]["hash"])
        for before, after in zip(plain, hashed, strict=True)
        for field in ("key", "value")
        if before[field] is not None
    }
    assert len(pairs) == len({value for value, _ in pairs}) == len({reported for _, reported in pairs}) == 8
    assert {len(reported) for _, reported in pairs} == {2 * HASH_BYTES} == {16}
    # The same in text and in tables, which have the bytes.
    text = decode(CODECS, "-vv", *options).text
    assert all(f"hash {reported} (" in text for _, reported in pairs)
    shown = rows(export(CODECS, tmp_path / "shown"), "records")
    made = rows(export(CODECS, tmp_path / "hashed", *options), "records")
    by_hash = dict(pairs)
    for before, after in zip(shown, made, strict=True):
        for field in ("key", "value"):
            value = before[field]
            if value is None:
                assert after[field] is None
            elif _is_text(value):
                assert by_hash[json.dumps(value.decode())] == after[field].hex()
        assert [header["key"] for header in before["headers"]] == [header["key"] for header in after["headers"]]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.extended
def test_the_number_of_processes_changes_nothing(tmp_path: Path, salt: Path) -> None:
    options = ("--hash-payload", "--hash-salt", salt)
    one, two = (decode(INTERNAL, "--format", "json", "--jobs", jobs, *options) for jobs in (1, 2))
    assert one.out == two.out
    folders = [export(INTERNAL, tmp_path / str(jobs), "--records", "--jobs", jobs, *options) for jobs in (1, 3)]
    assert tables(folders[0]) == tables(folders[1])


def test_records_of_the_brokers_own_topics_stay(tmp_path: Path) -> None:
    shown = records(decode(INTERNAL, "--format", "json").objects)
    hidden = records(decode(INTERNAL, "--format", "json", "--no-payload").objects)
    reported = 0
    for before, after in zip(shown, hidden, strict=True):
        for field in ("_key", "_value"):
            if field in before and (before[field] is None or "type" in before[field]):
                assert after[field] == before[field]
                reported += 1
        assert after["key"] is None or set(after["key"]) == {"length"}
    assert reported > 20
    # Topic names that are learnt late: these bodies are hidden at the end of the run, with the knowledge up to then.
    made = [rows(export(INTERNAL, tmp_path / name, "--records", *more), "exchanges")
            for name, more in (("shown", ()), ("hidden", ("--no-payload",)))]  # fmt: skip
    counts = []
    for table in made:
        bodies = [json.loads(row[side]) for row in table for side in ("request_body", "response_body") if row[side]]
        found = [record for record in records(bodies) if "type" in (record.get("_key") or ())]
        counts.append([record["_key"] for record in found])
    assert counts[0] == counts[1] != []


def test_live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = ("live", "-i", "eth0", "-q", "--duration", "0.05", "--format", "json", "-o", tmp_path / "lines")
    for hiding, left in (([], True), (["--no-payload"], False), (["--hash-payload"], False)):
        monkeypatch.setattr("kafkasniff.capture.live.live.open_live", Wire().open)
        folder = tmp_path / "-".join(("out", *hiding))
        assert kafkasniff(*options, "--export", folder, "--records", *hiding).code == Exit.OK
        # Values are one letter, 20 or more times.
        for output in ((tmp_path / "lines").read_bytes(), content(folder)):
            assert (b"a" * 20 in output, b"key-1" in output) == (left, left)
            assert b"orders" in output
        made = [one for one in tmp_path.rglob("*") if one.is_file()]
        assert {stat.S_IMODE(one.stat().st_mode) for one in made} == {0o600}


# -- salts -------------------------------------------------------------------------------------------------------------


def test_a_salt_travels_and_is_never_written(tmp_path: Path, salt: Path) -> None:
    options = ExportOptions(payload=SALT)
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.public != options
    assert options.public.payload.salt == b""
    assert options.public.payload.salt_id == SALT.salt_id != Payload.hashed(b"another salt").salt_id
    folder = export(CODECS, tmp_path / "out", "--hash-payload", "--hash-salt", salt)
    written = b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())
    assert not any(form in written for form in forms(salt.read_bytes()))
    assert b'"form": "hashed"' in (folder / "manifest.json").read_bytes()


def test_a_folder_has_one_salt(tmp_path: Path, salt: Path) -> None:
    folder = export(CODECS, tmp_path / "out", "--hash-payload", "--hash-salt", salt)
    export(OLD, folder, "--hash-payload", "--hash-salt", salt)
    other = kafkasniff("export", SCHEMAS, "--output", folder, "--hash-payload")
    assert other.code == Exit.USAGE
    assert "another salt" in other.err
    assert kafkasniff("export", SCHEMAS, "--output", folder, "--no-payload").code == Exit.USAGE


def tagged_produce() -> bytes:
    """A Produce request v9 with tagged fields that no definition has, in a topic and at its end; without its length."""
    topic = b"\x02t" + b"\x01" + b"\x01\x09\x06secret"
    header, front = bytes.fromhex("00000009 00000001 ffff 00"), bytes.fromhex("00 ffff 00000005 02")
    return header + front + topic + b"\x01\x81\x01\x06hidden"


@pytest.mark.parametrize("payload", [Payload("dropped"), SALT], ids=["dropped", "hashed"])
def test_tagged_fields_without_a_definition_may_be_payload_of_a_newer_release(payload: Payload) -> None:
    message = decode_request_of(tagged_produce())
    assert b64encode(b"secret").decode() in str(message.body)
    body = payload.hide(message).body
    assert body is not None
    assert body["topic_data"][0]["_unknown_tags"] == [{"tag": 9, **payload.stand_in(b"secret")}]
    assert body["_unknown_tags"] == [{"tag": 129, **payload.stand_in(b"hidden")}]


def test_tagged_fields_without_a_definition_in_lines(tmp_path: Path) -> None:
    talk = Conversation()
    talk.handshake()
    request, response = tagged_produce(), b"\0\0\0\1\0" + b"\1" + b"\0\0\0\0" + b"\0"
    talk.exchange(len(request).to_bytes(4) + request, len(response).to_bytes(4) + response)
    capture = write_pcap(tmp_path / "tags.pcap", talk.packets)
    shown, hidden = (kafkasniff("decode", "--format", "json", *more, capture).out for more in ([], ["--no-payload"]))
    for value in (b"secret", b"hidden"):
        assert b64encode(value) in shown
        assert b64encode(value) not in hidden


def test_tagged_fields_of_messages_without_payload_stay() -> None:
    metadata = b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x00" + b"\x01\x00\x00\x00" + b"\x01\x05\x03new"
    message = decode_request_of(metadata)
    assert Payload("dropped").hide(message) == message
    assert message.body is not None
    assert message.body["_unknown_tags"] == [{"tag": 5, "base64": b64encode(b"new").decode()}]
