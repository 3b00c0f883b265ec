"""One stream of a TLS connection: its records, their keys, and the search for them after a loss.

A record's number is part of its authentication and is not on the wire. After missing bytes neither the number nor,
usually, the position of the next record is known. Both are searched: candidates are tried with all numbers that the
missing bytes allow, under the present keys and those that follow them. Authentication confirms a match, so nothing is
ever guessed.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal, NamedTuple, Protocol

from kafkasniff.tls.descriptions import suite, version_name
from kafkasniff.tls.items import Gap
from kafkasniff.tls.keylog import SESSION_ID, KeyLog
from kafkasniff.tls.record import TLS12, TLS13, HandshakeBuffer, Record, RecordCutter

# The decryptor of a stream's records, from the negotiated parameters and the key log.

Phase = Literal["clear", "tls12", "open", "early", "handshake", "application"]
"""Keys of a stream's records:

- clear: none, so far
- tls12: those of TLS 1.2, from ChangeCipherSpec on
- open: TLS 1.3, but it is unknown so far whether the server accepts the client's early data
- early, handshake, application: TLS 1.3 (RFC 8446, 7.1)
"""

_LABELS: Final[dict[tuple[Phase, bool], str]] = {
    ("tls12", True): "CLIENT_RANDOM",
    ("tls12", False): "CLIENT_RANDOM",
    ("early", True): "CLIENT_EARLY_TRAFFIC_SECRET",
    ("handshake", True): "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    ("handshake", False): "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    ("application", True): "CLIENT_TRAFFIC_SECRET_0",
    ("application", False): "SERVER_TRAFFIC_SECRET_0",
}


class ProtectionError(Exception):
    """There is a secret, but it cannot be used; the message says why."""


class Protection(Protocol):
    """Opens the records of one stream in one epoch."""

    lead: int
    """Bytes of the fragment before the first one with a clear counterpart."""

    def open(self, record: Record, seq: int) -> tuple[int, bytes] | None:
        """Content type and clear bytes of the record with this number; None if it does not authenticate."""


class Negotiated(NamedTuple):
    """The result of two hellos."""

    client_random: bytes
    server_random: bytes
    version: int
    suite: int
    compression: int
    encrypt_then_mac: bool
    session_id: bytes = b""


class Epoch(NamedTuple):
    """The keys that a stream's records are under."""

    phase: Phase
    generation: int = 0
    """Number of updates of the application keys so far."""


def why_not(negotiated: Negotiated) -> str | None:
    """Why records of such a connection cannot be opened, whatever the key log has; None if they can."""
    if negotiated.version not in (TLS12, TLS13):
        return f"{version_name(negotiated.version)} is not decrypted"
    found = suite(negotiated.suite)
    if found is None or found.tls13 != (negotiated.version == TLS13):
        return "its cipher suite is not supported"
    if negotiated.compression:
        return "its records are compressed, which is not decrypted"
    return None


def secret_of(negotiated: Negotiated, phase: Phase, keys: KeyLog, order: int, *, client: bool) -> bytes | None:
    """The secret of the client's or the server's stream in a phase, as the key log has it at the packet of `order`."""
    label = _LABELS.get((phase, client))
    if label is None:
        return None
    found = keys.find(label, negotiated.client_random, order)
    if found is None and phase == "tls12" and negotiated.session_id:
        found = keys.find(SESSION_ID, negotiated.session_id, order)
    return found


def protection(negotiated: Negotiated, phase: Phase, secret: bytes, *, client: bool) -> Protection:
    """The decryptor of a stream under a secret. Raises ProtectionError if there is none."""
    found = suite(negotiated.suite)
    assert found is not None
    try:
        # The extra "tls", which is slow to import: only if there is something to decrypt.
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415

        from kafkasniff.tls.decrypt import Protection13, protections12  # noqa: PLC0415
    except ImportError:
        raise ProtectionError("decryption needs the package cryptography: install kafkasniff[tls]") from None
    try:
        if phase != "tls12":
            return Protection13(found, secret)
        both = protections12(
            found,
            secret,
            negotiated.client_random,
            negotiated.server_random,
            encrypt_then_mac=negotiated.encrypt_then_mac,
        )
    except ValueError:
        raise ProtectionError("its secret in the key log has a wrong length") from None
    except UnsupportedAlgorithm:
        raise ProtectionError("this machine's OpenSSL does not support its cipher") from None
    return both[0] if client else both[1]


def later_secret(negotiated: Negotiated, secret: bytes, updates: int) -> bytes:
    """The application secret of TLS 1.3 after some updates."""
    from kafkasniff.tls.decrypt import next_secret  # noqa: PLC0415 - as above

    found = suite(negotiated.suite)
    assert found is not None
    for _ in range(updates):
        secret = next_secret(found, secret)
    return secret


MAX_SKIPPED: Final = 16_384
"""Maximum number of records that may be missing at once: numbers that are tried for the next one."""
SMALLEST: Final = 22
"""Size of a record with one byte of content: bounds the number of records in missing bytes."""
MAX_SEARCH: Final = 256 << 10
"""Bytes in which the next record is searched: fifteen records of the largest size."""
TRIAL_BYTES: Final = 64 << 20
"""Bytes that may be decrypted in vain, some tenths of a second's work …"""
TRIAL_FACTOR: Final = 16
"""… and this many more for each byte that was decrypted. So the work stays linear in the input."""
TRIAL_COST: Final = 256
"""Fixed cost of a trial, expressed in bytes."""


class Loss(NamedTuple):
    """Bytes of a stream are missing between two records."""

    gap: Gap
    in_step: bool
    """One record was lost, and the position of the next one is known."""

    @property
    def order(self) -> int:
        """Order of the packet at which it became known."""
        return self.gap.order


class Half:
    """The state of one stream. Secrets from the key log are not part of it between two runs."""

    __slots__ = (
        "_budget",
        "_opener",
        "_refused",
        "_secret",
        "cutter",
        "dead",
        "direction",
        "epoch",
        "failed",
        "handshake",
        "held",
        "negotiated",
        "opened",
        "queue",
        "seq",
        "skippable",
        "slack",
        "started",
        "whole",
    )

    def __init__(self, direction: int) -> None:
        self.direction = direction
        self.cutter = RecordCutter()
        self.handshake = HandshakeBuffer()
        self.queue: deque[Record | Loss] = deque()
        """Records that were cut and could not be decrypted yet."""
        self.held = 0
        """Bytes of it."""
        self.negotiated: Negotiated | None = None
        """Origin of its present keys."""
        self.epoch = Epoch("clear")
        self.seq = 0
        """Number of the next record under these keys."""
        self.slack = 0
        """By how much it may be higher, because of losses."""
        self.opened = False
        """A record was opened."""
        self.failed = 0
        """Number of consecutive records that could not be opened."""
        self.skippable = 0
        """Number of records that may fail before the first success, since they are under other keys."""
        self.whole = True
        """No protected bytes are missing."""
        self.started = False
        """The beginning of the clear stream was emitted."""
        self.dead = False
        """No more of it is read."""
        self._budget = TRIAL_BYTES
        self._opener: Protection | None = None
        self._secret: tuple[Epoch, bytes] | None = None
        self._refused: str | None = None

    @property
    def waiting(self) -> int:
        """Bytes that are buffered until they can be decrypted."""
        return self.held + len(self.cutter)

    def die(self) -> None:
        """Read and buffer nothing more of it."""
        self.dead = True
        self.queue.clear()
        self.held = 0
        self.cutter.clear()
        self.handshake.clear()

    # -- keys -------------------------------------------------------------------------------------------------------

    def enter(self, epoch: Epoch, negotiated: Negotiated | None = None) -> None:
        """The following records are under other keys."""
        if negotiated is not None:
            self.negotiated = negotiated
            self._secret = None
        self.epoch = epoch
        self.seq = 0
        self._opener = None

    def refused(self) -> str | None:
        """Why its records cannot be opened even with keys, as far as is visible."""
        if self._refused is None and self.negotiated is not None:
            self._refused = why_not(self.negotiated)
        return self._refused

    def opener(self, keys: KeyLog, order: int, *, client: bool) -> Protection | None:
        """The decryptor of the present records; None if there are no keys for it at the packet of this order."""
        if self._opener is None:
            self._opener = self._make(self.epoch, keys, order, client=client)
        return self._opener

    def _make(self, epoch: Epoch, keys: KeyLog, order: int, *, client: bool) -> Protection | None:
        negotiated = self.negotiated
        if negotiated is None or self.refused() is not None:
            return None
        updates = epoch.generation
        if self._secret is not None and self._secret[0].phase == epoch.phase and self._secret[0] <= epoch:
            before, secret = self._secret
            updates -= before.generation
        else:
            found = secret_of(negotiated, epoch.phase, keys, order, client=client)
            if found is None:
                return None
            secret = found
        try:
            if updates:
                # Imports what `protection` does, which is imported by then: an update comes in a record that was
                # opened.
                secret = later_secret(negotiated, secret, updates)
            made = protection(negotiated, epoch.phase, secret, client=client)
        except ProtectionError as error:
            self._refused = str(error)
            return None
        if epoch == self.epoch:
            self._secret = (epoch, secret)
        return made

    # -- after losses -----------------------------------------------------------------------------------------------

    def _suspects(self) -> list[tuple[Epoch, int]]:
        """The keys that the next record may be under, and its lowest possible number."""
        here, seq = self.epoch, self.seq
        if self.negotiated is None:
            return []
        if self.negotiated.version != TLS13:
            return [(Epoch("tls12"), seq if here.phase == "tls12" else 0)]
        if here.phase == "application":
            return [(here, seq), (Epoch("application", here.generation + 1), 0)]
        return [(Epoch("handshake"), seq if here.phase == "handshake" else 0), (Epoch("application"), 0)]

    def can_search(self, keys: KeyLog, order: int, *, client: bool) -> bool:
        """Whether there are keys to search for records with."""
        return any(self._make(epoch, keys, order, client=client) is not None for epoch, _ in self._suspects())

    @property
    def spent(self) -> bool:
        """The work limit is exhausted: nothing more will be tried."""
        return self._budget <= 0

    def search(self, record: Record, span: int, keys: KeyLog, order: int, *, client: bool) -> _Opened | None:
        """Open a record whose number is at most `span` above the next one; None on failure.

        On success, the stream is in step after it.
        """
        size = len(record.data) + TRIAL_COST
        for epoch, first in self._suspects():
            opener = self._opener if epoch == self.epoch and self._opener is not None else None
            opener = opener or self._make(epoch, keys, order, client=client)
            if opener is None:
                continue
            for seq in range(first, first + min(span, MAX_SKIPPED) + 1):
                if self._budget <= 0:
                    return None
                opened = opener.open(record, seq)
                if opened is None:
                    self._budget -= size
                    continue
                if epoch != self.epoch:
                    self.enter(epoch)
                    self._opener = opener
                self.seq = seq
                self.accept(size)
                return _Opened(opener.lead, *opened)
        return None

    def resume(self, keys: KeyLog, order: int, *, client: bool) -> tuple[Record, _Opened] | None:
        """Search for the next record after a loss; None if more bytes are needed, or the search is over (`dead`)."""
        cutter = self.cutter
        while (record := cutter.seek()) is not None and not self.spent:
            found = self.search(record, cutter.passed // SMALLEST + 1, keys, order, client=client)
            if found is not None:
                cutter.found(record)
                return record, found
        return None

    @property
    def given_up(self) -> bool:
        """The search failed."""
        return self.spent or self.cutter.searched > MAX_SEARCH

    def accept(self, size: int) -> None:
        """The record with the present number was opened."""
        self.seq += 1
        self.slack = 0
        self.failed = 0
        self.opened = True
        self._budget = min(self._budget + TRIAL_FACTOR * size, TRIAL_BYTES)


class _Opened(NamedTuple):
    """The content of a record."""

    lead: int
    content_type: int
    clear: bytes
