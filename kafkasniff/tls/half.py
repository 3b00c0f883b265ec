"""One stream of a TLS connection: its records, their keys, and the search for them after a loss.

A record's number is part of its authentication and is not on the wire. After missing bytes neither the number nor,
usually, the position of the next record is known. Both are searched: candidates are tried with all numbers that the
missing bytes allow, under the present keys and those that follow them. Authentication confirms a match, so nothing is
ever guessed. Records of TLS 1.2 and 1.3 are decrypted with the package cryptography.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from typing import Final, Literal, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from kafkasniff.tls.descriptions import Suite, suite, version_name
from kafkasniff.tls.items import Gap
from kafkasniff.tls.keylog import SESSION_ID, KeyLog
from kafkasniff.tls.record import TLS12, TLS13, HandshakeBuffer, Record, RecordCutter

# TLS 1.2 (RFC 5246, 6.2.3 and 6.3).
#
# AEAD: RFC 5288 (GCM), 6655 (CCM), 7905 (ChaCha20-Poly1305). CBC with HMAC, authenticated before or after encryption
# (RFC 7366, encrypt-then-MAC). Versions before 1.2 are not decrypted: they chain or derive differently.

_BLOCK: Final = 16
_EXPLICIT: Final = 8
"""Bytes of the nonce at the beginning of a record of GCM or CCM."""
_MASTER: Final = 48


def protections12(
    suite: Suite, master: bytes, client_random: bytes, server_random: bytes, *, encrypt_then_mac: bool
) -> tuple[Aead12 | Cbc12, Aead12 | Cbc12]:
    """The protection of the client's and the server's records, from the master secret.

    Raises ValueError if its length is wrong, UnsupportedAlgorithm if OpenSSL lacks the cipher.
    """
    if len(master) != _MASTER:
        raise ValueError("a master secret has 48 bytes")
    if suite.mode == "cbc":
        lengths = [suite.tag_length, suite.tag_length, suite.key_length, suite.key_length]
    else:
        fixed = 12 if suite.mode == "chacha20" else 4
        lengths = [suite.key_length, suite.key_length, fixed, fixed]
    block = _prf(suite.digest, master, b"key expansion", server_random + client_random, sum(lengths))
    parts = []
    for length in lengths:
        parts.append(block[:length])
        block = block[length:]
    if suite.mode == "cbc":
        return (
            Cbc12(parts[2], parts[0], suite.mac, encrypt_then_mac=encrypt_then_mac),
            Cbc12(parts[3], parts[1], suite.mac, encrypt_then_mac=encrypt_then_mac),
        )
    return Aead12(suite, parts[0], parts[2]), Aead12(suite, parts[1], parts[3])


def _prf(digest: str, secret: bytes, label: bytes, seed: bytes, length: int) -> bytes:
    """RFC 5246, 5."""
    seed = label + seed
    out, chained = b"", seed
    while len(out) < length:
        chained = hmac.digest(secret, chained, digest)
        out += hmac.digest(secret, chained + seed, digest)
    return out[:length]


def _additional(record: Record, seq: int, length: int) -> bytes:
    return seq.to_bytes(8) + bytes((record.content_type,)) + record.version.to_bytes(2) + length.to_bytes(2)


def aead(suite: Suite, key: bytes) -> AESGCM | AESCCM | ChaCha20Poly1305:
    """The cipher of an AEAD suite."""
    if suite.mode == "gcm":
        return AESGCM(key)
    return AESCCM(key, suite.tag_length) if suite.mode == "ccm" else ChaCha20Poly1305(key)


class Aead12:
    """The records of one stream, by an AEAD cipher."""

    __slots__ = ("_cipher", "_fixed", "_tag", "lead")

    def __init__(self, suite: Suite, key: bytes, fixed: bytes) -> None:
        self._cipher = aead(suite, key)
        self._fixed = fixed
        self._tag = suite.tag_length
        self.lead = 0 if suite.mode == "chacha20" else _EXPLICIT
        """Bytes of the fragment before the first one with a clear counterpart."""

    def open(self, record: Record, seq: int) -> tuple[int, bytes] | None:
        """Content type and clear bytes of the record with this number; None if it does not authenticate. Hot."""
        data, lead = record.data, self.lead
        length = len(data) - lead - self._tag
        if length < 0:
            return None
        if lead:
            nonce = self._fixed + data[:lead]
            data = data[lead:]
        else:
            nonce = (int.from_bytes(self._fixed) ^ seq).to_bytes(12)
        try:
            clear = self._cipher.decrypt(nonce, data, _additional(record, seq, length))
        except InvalidTag:
            return None
        return record.content_type, clear


class Cbc12:
    """The records of one stream, by AES in CBC mode and HMAC."""

    __slots__ = ("_digest", "_key", "_mac_first", "_mac_key", "_size", "lead")

    def __init__(self, key: bytes, mac_key: bytes, digest: str, *, encrypt_then_mac: bool) -> None:
        self._key = AES(key)
        self._mac_key = mac_key
        self._digest = digest
        self._size = hashlib.new(digest).digest_size
        self._mac_first = not encrypt_then_mac
        self.lead = _BLOCK
        """Bytes of the fragment before the first one with a clear counterpart: the initialisation vector."""

    def open(self, record: Record, seq: int) -> tuple[int, bytes] | None:
        """Content type and clear bytes of the record with this number; None if it does not authenticate. Hot."""
        data = record.data
        if not self._mac_first:
            end = len(data) - self._size
            if end < 2 * _BLOCK or not self._is_authentic(record, seq, data[:end], data[end:]):
                return None
            data = data[:end]
        if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
            return None
        decryptor = Cipher(self._key, CBC(data[:_BLOCK])).decryptor()
        clear = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
        # Padding: its length, repeated that often, and the length itself. Reading a capture is not a padding oracle, so
        # plain checks suffice.
        padding = clear[-1] + 1
        if padding > len(clear) or clear[-padding:] != bytes((padding - 1,)) * padding:
            return None
        clear = clear[:-padding]
        if self._mac_first:
            end = len(clear) - self._size
            if end < 0 or not self._is_authentic(record, seq, clear[:end], clear[end:]):
                return None
            clear = clear[:end]
        return record.content_type, clear

    def _is_authentic(self, record: Record, seq: int, data: bytes, mac: bytes) -> bool:
        wanted = hmac.digest(self._mac_key, _additional(record, seq, len(data)) + data, self._digest)
        return hmac.compare_digest(wanted, mac)


# TLS 1.3 (RFC 8446, 5.2-5.3 and 7.1-7.3).

_IV = 12


def _expand_label(suite: Suite, secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label without a context (RFC 8446, 7.1)."""
    full = b"tls13 " + label
    info = length.to_bytes(2) + bytes((len(full),)) + full + b"\0"
    return HKDFExpand(SHA384() if suite.digest == "sha384" else SHA256(), length, info).derive(secret)


def next_secret(suite: Suite, secret: bytes) -> bytes:
    """The traffic secret after a KeyUpdate (RFC 8446, 7.2)."""
    return _expand_label(suite, secret, b"traffic upd", len(secret))


class Protection13:
    """The records of one stream under one traffic secret.

    Raises ValueError if its length is not that of the suite's hash, UnsupportedAlgorithm if OpenSSL lacks the cipher.
    """

    __slots__ = ("_cipher", "_iv", "lead")

    def __init__(self, suite: Suite, secret: bytes) -> None:
        if len(secret) != (48 if suite.digest == "sha384" else 32):
            raise ValueError("a traffic secret has the length of the suite's hash")
        key = _expand_label(suite, secret, b"key", suite.key_length)
        self._iv = int.from_bytes(_expand_label(suite, secret, b"iv", _IV))
        self._cipher = aead(suite, key)
        self.lead = 0
        """Bytes of the fragment before the first one with a clear counterpart."""

    def open(self, record: Record, seq: int) -> tuple[int, bytes] | None:
        """Content type and clear bytes of the record with this number; None if it does not authenticate. Hot."""
        try:
            inner = self._cipher.decrypt((self._iv ^ seq).to_bytes(_IV), record.data, record.header)
        except InvalidTag:
            return None
        # The content type is the last non-zero byte; padding follows it (RFC 8446, 5.4).
        inner = inner.rstrip(b"\0")
        return (inner[-1], inner[:-1]) if inner else None


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

        from kafkasniff.tls.half import Protection13, protections12  # noqa: PLC0415
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
    from kafkasniff.tls.half import next_secret  # noqa: PLC0415 - as above

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
