"""Payload and secrets of an API known only from its definition: no output shows them, complete or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kafkasniff.analysis import question_names
from kafkasniff.cli.environment import Exit
from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Message
from kafkasniff.redact.message import Blanker
from kafkasniff.redact.payload import Payload
from tests.choice import fewer, in_turn, one_in
from tests.cli.console import kafkasniff
from tests.craft import damage, disturb
from tests.craft.write import write_pcap
from tests.invented import KEY, PAYLOAD, SECRETS, known, packets, payload_in, requests, responses, secrets_in
from tests.outputs import content, watched
from tests.redact.blanked import write

HIDING = [["--no-payload"], ["--hash-payload"]]
FORMS = {
    "json": ["--format", "json"],
    "hex": ["--format", "json", "--bytes", "hex"],
    "base64": ["--format", "json", "--bytes", "base64"],
    "line": [],
    "fields": ["-v"],
    "tree": ["-vv", "--color", "always"],
    "two passes": ["-vv", "--two-pass"],
    "no records": ["--format", "json", "--no-records"],
}
DAMAGE = {
    "cut": damage.cut,
    "snapped": damage.snapped,
    "lossy": damage.lossy,
    "responses only": damage.responses_only,
    "requests only": damage.requests_only,
    "resegmented": disturb.resegmented,
}


@pytest.fixture(scope="module", autouse=True)
def _known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with known(tmp_path_factory.mktemp("definitions")):
        yield
    assert api(KEY) is None


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pcap(tmp_path_factory.mktemp("invented") / "invented.pcap", packets(), nanoseconds=True)


def test_everything_is_shown_on_request(path: Path) -> None:
    """The premise of the other tests."""
    shown = kafkasniff("decode", "-q", "--format", "json", "--show-secrets", path)
    assert shown.code == Exit.OK, shown.err
    assert payload_in(shown.out) == set(PAYLOAD)
    assert secrets_in(shown.out) == set(SECRETS)
    assert len(PAYLOAD) > 100
    # The log's records are not Kafka's, and the message forwarded by version 0 is not a message at all.
    kinds = {one["kind"] for line in shown.objects for one in line["problems"]}
    assert kinds == {"internal-record", "header-truncated", "api-unknown"}
    text = kafkasniff("decode", "-q", "-vv", path).out
    assert payload_in(text) >= {"request note", "response late blob", "request optional value"}


def hides(output: bytes, *more: bytes) -> None:
    """Fail with the places whose payload or secrets appear."""
    whole = output + b"".join(more)
    assert payload_in(whole) | secrets_in(whole) == set()


@pytest.mark.parametrize(("hiding", "form"), one_in(2, in_turn(HIDING, FORMS, 2)), ids="".join)
def test_lines(path: Path, form: str, hiding: list[str]) -> None:
    result = kafkasniff("decode", *FORMS[form], *hiding, path)
    assert result.code == Exit.OK
    assert result.out
    hides(result.out, result.err.encode())
    shown = kafkasniff("decode", *FORMS[form], *hiding, "--show-secrets", path)
    assert payload_in(shown.out + shown.err.encode()) == set()


@pytest.mark.parametrize("more", one_in(3, [["--records"], [], ["--no-bodies"]]), ids=" ".join)
def test_tables(path: Path, tmp_path: Path, more: list[str]) -> None:
    for number, hiding in enumerate([[], *HIDING]):
        folder = tmp_path / str(number)
        result = kafkasniff("export", path, "--output", folder, *more, *hiding)
        assert result.code == Exit.OK, result.err
        assert secrets_in(content(folder) + result.err.encode()) == set()
        found = payload_in(content(folder))
        assert found == set() if hiding else ("request partition 0 value" in found)


def test_answers(path: Path, tmp_path: Path) -> None:
    """Measurements and findings name topics and clients, but no payload and no secrets."""
    folder, page = tmp_path / "out", tmp_path / "page.html"
    kafkasniff("export", path, "--output", folder, "--records", "--no-payload")
    for command in (
        ["stats", path], ["stats", "--format", "json", path], ["check", path], ["timing", path],
        ["audit", path, "--target", "4.0"], ["diff", path, path], ["report", path, "--output", page],
        *(["analyze", question, folder, "--format", "json"] for question in one_in(24, question_names())),
    ):  # fmt: skip
        result = kafkasniff(*command)
        assert result.code != Exit.INTERNAL, result.err
        hides(result.out, result.err.encode())
    hides(page.read_bytes())


def test_views_of_a_live_run() -> None:
    screens, scraped = watched(packets())
    assert "Invented" in screens
    hides(screens.encode(), scraped.encode())


def test_pasted_bytes() -> None:
    for version in (0, 2):
        for arguments in ([requests(version).hex()], ["--response", "--api", KEY, "--version", version,
                                                      responses(version).hex()]):  # fmt: skip
            for form in (["-v"], ["--format", "json"]):
                result = kafkasniff("decode-bytes", *form, *arguments)
                assert result.code == Exit.OK, result.err
                assert secrets_in(result.out + result.err.encode()) == set()
                assert b"Invented" in result.out


# -- captures to share -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secrets", [False, True])
def test_written_captures(path: Path, tmp_path: Path, secrets: bool) -> None:
    out = tmp_path / "out.pcap"
    write(path, out, secrets=secrets)
    assert payload_in(out.read_bytes()) == set()
    found = secrets_in(out.read_bytes())
    assert {"request password 0", "response late secret"} <= found if secrets else found == set()
    write(path, out, payload=True)
    assert secrets_in(out.read_bytes()) == set()
    assert {"request note", "response late blob"} <= payload_in(out.read_bytes())


@pytest.mark.parametrize("name", one_in(3, list(DAMAGE)))
def test_damaged_captures(name: str, tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "in.pcap", DAMAGE[name](packets(), Random(3)), nanoseconds=True)
    assert payload_in(path.read_bytes())
    out = tmp_path / "out.pcap"
    write(path, out)
    assert payload_in(out.read_bytes()) | secrets_in(out.read_bytes()) == set()
    for hiding in one_in(2, HIDING, list(DAMAGE).index(name) % 2):
        for form in (["--format", "json"], ["-vv"]):
            result = kafkasniff("decode", *form, *hiding, path)
            hides(result.out, result.err.encode())
        folder = tmp_path / hiding[0]
        kafkasniff("export", path, "--output", folder, "--records", *hiding)
        hides(content(folder))


# -- truncated or wrong messages ---------------------------------------------------------------------------------------

SIDES = ("request", "response")


def _decoded(side: str, version: int, data: bytes, options: DecodeOptions, *, cut: bool) -> Decoded:
    if side == "request":
        return decode_request(data, 0, len(data), options, cut=cut)
    return decode_response(data, 0, len(data), KEY, version, options, cut=cut)


def _left(side: str, version: int, data: bytes, *, cut: bool, secrets: bool) -> bytes:
    """Output and stored bytes of a message without its payload."""
    found = _decoded(side, version, data, DecodeOptions(show_secrets=secrets), cut=cut)
    message = Message(
        "request" if side == "request" else "response", len(data), api_key=found.api_key, api=found.api,
        api_version=found.api_version, body=found.body, raw=found.raw, problems=found.problems,
    )  # fmt: skip
    reported = repr(Payload("dropped").hide(message)).encode()
    blanker = Blanker(secrets=secrets, payload=False)
    found = _decoded(side, version, data, blanker.options, cut=cut)
    return reported + bytes(blanker.message(data, 0, len(data), found, request=side == "request", cut=cut))


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("side", SIDES)
def test_messages_truncated_in_any_field(side: str, version: int) -> None:
    data = (requests(version) if side == "request" else responses(version))[4:]
    rng = Random(version)
    places = sorted({*rng.sample(range(len(data)), fewer(20, 60)), *range(len(data) - 20, len(data))})
    for number, end in enumerate(places):
        for cut in (False, True):
            secrets = number % 2 == 1
            left = _left(side, version, data[:end], cut=cut, secrets=secrets)
            assert b"payload-" not in left, end
            assert secrets or b"hidden-" not in left, end


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("side", SIDES)
def test_messages_with_a_wrong_byte(side: str, version: int) -> None:
    """Each hidden value begins with its length: a wrong length shifts the values after it."""
    data = (requests(version) if side == "request" else responses(version))[4:]
    places, at = set(), data.find(b"payload-")
    while at >= 0:
        places |= set(range(at - 8, at))
        at = data.find(b"payload-", at + 1)
    start = 8 + 2 + len("crafted") if side == "request" else 4
    for place in sorted(place for place in places if place > start)[:: fewer(40, 5)]:
        for mask in (0x01, 0xFF):
            damaged = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
            assert b"payload-" not in _left(side, version, damaged, cut=False, secrets=False), place


def test_an_unknown_version() -> None:
    data = requests(2)[4:6] + b"\0\x05" + requests(2)[8:]
    left = _left("request", 2, data, cut=False, secrets=True)
    assert payload_in(left) == set()
