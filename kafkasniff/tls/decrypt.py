"""Records of TLS 1.2 and 1.3 to clear bytes, with the package cryptography."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from kafkasniff.tls.descriptions import Suite
from kafkasniff.tls.record import Record

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
