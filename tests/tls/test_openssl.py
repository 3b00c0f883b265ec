"""What only OpenSSL's programs can do, in `sessions.json`; `python -m tests.tls.test_openssl` records it again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.console import kafkasniff
from tests.craft.write import write_pcap
from tests.tls.endpoints import Flight, certificate, kafka_talk, new_folder, packets_of
from tests.tls.openssl import Endpoints
from tests.tls.reading import clear_contents, contents, decrypted, kinds

RECORDED = Path(__file__).parent / "sessions.json"
SAID = kafka_talk(2)


class Scene(NamedTuple):
    """Options of both programs, and commands that they execute before each message but the first."""

    server: Sequence[str] = ()
    client: Sequence[str] = ()
    between: Sequence[Flight] = ()
    early: bool | None = None
    """The first message is early data of a resumed session, which the server accepts or rejects."""


def _suite(name: str) -> Scene:
    return Scene(["-ciphersuites", name], ["-ciphersuites", name])


SCENES = {
    **{
        name: _suite(name)
        for name in (
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS_CHACHA20_POLY1305_SHA256",
            "TLS_AES_128_CCM_SHA256",
            "TLS_AES_128_CCM_8_SHA256",
        )
    },
    "key updates that ask for one": Scene(between=[("client", b"K\n"), ("broker", b"K\n"), ("client", b"K\n")]),
    "key updates": Scene(between=[("client", b"k\n"), ("broker", b"k\n"), ("client", b"k\n")]),
    "padding": Scene(["-record_padding", "300"], ["-record_padding", "512", "-max_send_frag", "512"]),
    "hello retry": Scene(["-groups", "P-384"], ["-groups", "X25519:P-384"]),
    "client certificate": Scene(["-verify", "1"], ["-cert", "CERT", "-key", "KEY"]),
    # TLS 1.2: new keys in mid-connection. R of s_client requests it, and both sides' hellos are encrypted.
    "renegotiation": Scene(["-tls1_2", "-client_renegotiation"], ["-tls1_2"], [("client", b"R\n")]),
    "early data": Scene(["-early_data"], early=True),
    "rejected early data": Scene(["-max_early_data", "16000"], early=False),
}


EVENTS = {
    "key updates": {"key_updates": 3 * (len(SAID) - 1)},
    # Three that are asked for by commands, and one that answers them.
    "key updates that ask for one": {"key_updates": 4 * (len(SAID) - 1)},
    "renegotiation": {"renegotiations": len(SAID) - 1},
    "early data": {"early_data_accepted": 1, "resumed": 1},
    "rejected early data": {"early_data_refused": 1, "resumed": 1},
}


def converse(openssl: str, scene: Scene) -> tuple[list[Flight], bytes]:
    """What the programs send in a scene, and the client's key log."""
    cert, key = certificate("rsa")
    client = [{"CERT": str(cert), "KEY": str(key)}.get(word, word) for word in scene.client]
    folder = new_folder()
    ends = Endpoints(openssl, folder, scene.server)
    said, before = SAID, 0
    try:
        if scene.early is not None:
            early, session = folder / "early", folder / "session"
            early.write_bytes(SAID[0][1])
            with ends.connection("-sess_out", str(session)) as connection:
                for side, data in SAID:
                    connection.say(side, data)
            before = ends.log.stat().st_size
            client += ["-sess_in", str(session), "-early_data", str(early)]
            # Rejected early data has to be sent again.
            said = SAID[1:] if scene.early else SAID
        with ends.connection(*client) as connection:
            for number, (side, data) in enumerate(said):
                for who, command in scene.between if number else ():
                    connection.say(who, command)
                connection.say(side, data)
        return connection.flights, ends.log.read_bytes()[before:]
    finally:
        ends.close()


def check(name: str, flights: list[Flight], log: bytes) -> None:
    if SCENES[name].early is not None:
        assert b"CLIENT_EARLY_TRAFFIC_SECRET" in log
    if name == "renegotiation":
        assert log.count(b"CLIENT_RANDOM") > 2
    for sizes in (1448, 61):
        found = decrypted(packets_of(flights, sizes=sizes), log)
        assert contents(found) == clear_contents(SAID)
        assert kinds(found) == []


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", SCENES)
def test_recorded_sessions(name: str) -> None:
    session = recorded()[name]
    check(name, [(side, bytes.fromhex(data)) for side, data in session["flights"]], session["log"].encode())


@pytest.mark.parametrize("name", [*EVENTS, "hello retry"])
def test_what_doctor_says_of_a_session(name: str, tmp_path: Path) -> None:
    session = recorded()[name]
    capture = write_pcap(
        tmp_path / "a.pcap", packets_of([(side, bytes.fromhex(data)) for side, data in session["flights"]])
    )
    (tmp_path / "keys.log").write_text(session["log"], encoding="utf-8")
    result = kafkasniff("tls", "doctor", capture, "--keylog", tmp_path / "keys.log", "--format", "json")
    assert [case["counts"] for case in result.objects[0]["cases"]] == [EVENTS.get(name, {})]


@pytest.mark.extended
@pytest.mark.parametrize("name", SCENES)
def test_the_programs_of_this_machine(require_tool: Callable[[str], str], name: str) -> None:
    check(name, *converse(require_tool("openssl"), SCENES[name]))


def record() -> None:
    openssl = shutil.which("openssl")
    assert openssl is not None
    made = {}
    for name, scene in SCENES.items():
        flights, log = converse(openssl, scene)
        made[name] = {"flights": [(side, data.hex()) for side, data in flights], "log": log.decode()}
    RECORDED.write_text(json.dumps(made, indent=0) + "\n")


if __name__ == "__main__":
    record()
