"""Key logs: the secrets of TLS connections, logged by one of their endpoints.

A line is a label, the client random of the connection, and the secret, the latter two as hexadecimal digits (RFC 9850,
originally NSS's SSLKEYLOGFILE). Java agents and OpenSSL's `s_client` also write `RSA Session-ID:… Master-Key:…`, which
names a session of TLS 1.2 by the id in its ServerHello (Wireshark's documentation of `tls.keylog_file`). Such lines are
in a file, which may grow while it is read, and in decryption secrets blocks of pcapng captures, which apply from their
place in the capture on. So the result of decryption does not depend on how packets were batched.

No secret and no line is ever part of a report about a key log.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

LABELS: Final = frozenset(
    {
        "CLIENT_RANDOM",
        "CLIENT_EARLY_TRAFFIC_SECRET",
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    }
)
"""Labels whose secrets decrypt records. Lines with others (exporters, QUIC, ECH) are skipped, as RFC 9850 requires."""

SESSION_ID: Final = "Session-ID"
"""Replaces the label of a master secret that is found by the id of its session."""

MAX_SECRETS: Final = 262_144
"""Maximum number of secrets of a file, and of captures, some 250 bytes each; a TLS 1.3 connection has four. Beyond it
the oldest of a file are dropped, since it may grow forever; for captures the first are kept.
"""
MAX_LINE: Final = 4096
"""Maximum size of a line in bytes; the longest useful ones have 200."""
MAX_FLAWS: Final = 20
"""Number of bad lines that are reported individually; later ones are counted."""

_LINE: Final = re.compile(rb"([A-Z0-9_]+) ([0-9A-Fa-f]*) ([0-9A-Fa-f]*)")
_SESSION: Final = re.compile(rb"RSA Session-ID: ?([0-9A-Fa-f]*) Master-Key: ?([0-9A-Fa-f]*)")
_LONGEST_SESSION_ID: Final = 32
_RANDOM: Final = 32
_LENGTHS: Final = {True: frozenset({48}), False: frozenset({32, 48})}
"""Valid lengths of secrets: of a master secret, and of those of TLS 1.3, which have the length of their hash."""


class _LineCutter:
    """Cuts one source into lines, and counts them."""

    __slots__ = ("count", "name", "rest")

    def __init__(self, name: str) -> None:
        self.name = name
        self.rest = b""
        self.count = 0

    def cut(self, data: bytes, *, ended: bool) -> list[bytes]:
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        if ended and self.rest:
            lines.append(self.rest)
            self.rest = b""
        # An overlong line is invalid; the rest of it is reported as further invalid lines.
        self.rest = self.rest[: MAX_LINE + 1]
        return lines


class FileSecrets:
    """A key log's state of its file, for other processes of the run: can be pickled, but must not be shown."""

    __slots__ = ("flaws", "secrets")

    def __init__(self, secrets: dict[tuple[str, bytes], bytes], flaws: int) -> None:
        self.secrets = secrets
        self.flaws = flaws
        """Number of bad lines so far: continued reading must not report more of them than one process would."""


class KeyLog:
    """Secrets by label and client random.

    `more` returns the bytes added to a file since the last call, `b""` if there are none. Its secrets are not part of a
    state: a resumed run has to name the file again (`follow`).
    """

    __slots__ = (
        "_captured",
        "_counted",
        "_file",
        "_flaw_count",
        "_flaws",
        "_lines",
        "_more",
        "_since",
        "grows",
        "reports",
    )

    def __init__(self, more: Callable[[], bytes] | None = None, *, name: str = "key log", grows: bool = False) -> None:
        self._captured: dict[tuple[str, bytes], tuple[int, bytes]] = {}
        """From captures: with the order of the packet from which on they apply."""
        self._since: int | None = None
        """The first such order."""
        self._flaws: list[str] = []
        self._flaw_count = 0
        self._counted = 0
        """Number of bad lines that were reported only as a count."""
        self.follow(more, name=name, grows=grows)

    def follow(self, more: Callable[[], bytes] | None, *, name: str = "key log", grows: bool = False) -> None:
        """Also take secrets from a file. `grows`: it is being written, so secrets may arrive after their packets."""
        self._file: dict[tuple[str, bytes], bytes] = {}
        self._lines = _LineCutter(name)
        self._more = more
        self.grows = grows
        self.reports = True
        """Report bad lines: if several processes read the same input, one of them does."""
        if more is not None:
            self._read(ended=not grows)

    @property
    def file_secrets(self) -> FileSecrets | None:
        """The file's state so far; None if there is no file."""
        return None if self._more is None else FileSecrets(self._file, self._flaw_count)

    @classmethod
    def of(cls, read: FileSecrets | None) -> KeyLog:
        """Continue with the file of another key log, from its position, without its pending reports."""
        key_log = cls()
        if read is not None:
            key_log._file, key_log._flaw_count, key_log._more = read.secrets, read.flaws, _nothing
            key_log._counted = max(0, read.flaws - MAX_FLAWS)
        return key_log

    @property
    def sessions(self) -> int:
        """Number of sessions whose secrets it has: of connections in TLS 1.3."""
        return len({known_by for _, known_by in (*self._file, *self._captured)})

    def given(self, order: int) -> bool:
        """Whether there is any source of secrets, as known at the packet of this order."""
        return self._more is not None or bool(self._file) or self._captures_have(order)

    def _captures_have(self, order: int) -> bool:
        return self._since is not None and self._since <= order

    def find(self, label: str, client_random: bytes, order: int) -> bytes | None:
        """The secret of a connection as known at the packet of this order; None if there is none (yet)."""
        key = (label, client_random)
        found = self._file.get(key)
        if found is None and self.grows:
            self._read(ended=False)
            found = self._file.get(key)
        if found is None and key in self._captured:
            since, secret = self._captured[key]
            if since <= order:
                found = secret
        return found

    def may_come(self, order: int) -> bool:
        """Whether a secret that is missing at the packet of this order may still arrive, so that waiting helps."""
        return self.grows or self._captures_have(order)

    def add_captured(self, block: bytes, order: int) -> None:
        """Take a block of a capture; its secrets apply from the packet of this order on."""
        lines = _LineCutter("key log in the capture")
        self._since = order if self._since is None else min(self._since, order)
        for label, client_random, secret in self._parse(lines, lines.cut(block, ended=True)):
            # The first ones win: what applies at a packet must not depend on later blocks.
            if len(self._captured) < MAX_SECRETS:
                self._captured.setdefault((label, client_random), (order, secret))

    def absorb(self, other: KeyLog) -> None:
        """Take over another one's secrets from captures."""
        if other._since is not None:
            self._since = other._since if self._since is None else min(self._since, other._since)
        for key, entry in other._captured.items():
            if key not in self._captured or entry[0] < self._captured[key][0]:
                self._captured[key] = entry

    def take_flaws(self) -> list[str]:
        """Reports of invalid lines since the last call, a sentence each.

        Past MAX_FLAWS lines the sentence is a count, repeated when it has doubled, since the file may grow forever.
        """
        flaws, self._flaws = self._flaws, []
        further = self._flaw_count - MAX_FLAWS
        if self.reports and further > 0 and further >= 2 * self._counted:
            flaws.append(f"{further:,} more lines are invalid")
            self._counted = further
        return flaws

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, *, ended: bool) -> None:
        assert self._more is not None
        while data := self._more():
            self._keep(self._lines.cut(data, ended=False))
        if ended:
            self._keep(self._lines.cut(b"", ended=True))

    def _keep(self, lines: list[bytes]) -> None:
        for label, client_random, secret in self._parse(self._lines, lines):
            self._file[label, client_random] = secret
        while len(self._file) > MAX_SECRETS:
            del self._file[next(iter(self._file))]

    def _parse(self, source: _LineCutter, lines: list[bytes]) -> list[tuple[str, bytes, bytes]]:
        found = []
        for line in lines:
            source.count += 1
            text = line.rstrip(b"\r \t")
            if source.count == 1:
                text = text.removeprefix(b"\xef\xbb\xbf")
            if not text or text.startswith(b"#"):
                continue
            parsed = _parse_line(text)
            if isinstance(parsed, str):
                self._flaw(f"line {source.count} of the {source.name} {parsed}")
            elif parsed is not None:
                found.append(parsed)
        return found

    def _flaw(self, text: str) -> None:
        self._flaw_count += 1
        if self.reports and self._flaw_count <= MAX_FLAWS:
            self._flaws.append(text)


def _nothing() -> bytes:
    """The contents of a file that was read before."""
    return b""


def _parse_line(text: bytes) -> tuple[str, bytes, bytes] | str | None:
    """Label, client random and secret; what is wrong with the line; None if it is not needed here."""
    if len(text) > MAX_LINE:
        return "is longer than any valid line"
    match = _LINE.fullmatch(text) or _SESSION.fullmatch(text)
    if match is None:
        return "is not LABEL CLIENT_RANDOM SECRET"
    *named, known_by, key = match.groups()
    label = named[0].decode() if named else SESSION_ID
    if label != SESSION_ID and label not in LABELS:
        # Premaster secrets (`RSA …`) are among them: OpenSSL also writes the master secret of the connection.
        return None
    try:
        client_random, secret = bytes.fromhex(known_by.decode()), bytes.fromhex(key.decode())
    except ValueError:
        return "has an odd number of hexadecimal digits"
    if label == SESSION_ID:
        return _session_line(client_random, secret)
    if len(client_random) != _RANDOM:
        return f"has a client random of {len(client_random)} bytes, not {_RANDOM}"
    if len(secret) not in _LENGTHS[label == "CLIENT_RANDOM"]:
        return f"has a secret of {len(secret)} bytes, an invalid length for its kind"
    return label, client_random, secret


def _session_line(session_id: bytes, secret: bytes) -> tuple[str, bytes, bytes] | str:
    if len(session_id) > _LONGEST_SESSION_ID:
        return f"has a session id of {len(session_id)} bytes, more than the maximum of {_LONGEST_SESSION_ID}"
    if not session_id:
        return "has an empty session id, so that its connection cannot be found"
    if len(secret) not in _LENGTHS[True]:
        return f"has a master key of {len(secret)} bytes, not 48"
    return SESSION_ID, session_id, secret
