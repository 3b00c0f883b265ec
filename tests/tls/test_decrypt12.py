"""Records of TLS 1.2, protected here after the RFCs and opened again; and those of which one byte is wrong."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tls.ciphers import Suite, suite
from kafkasniff.tls.decrypt12 import Aead12, Cbc12, protections12
from kafkasniff.tls.record import APPLICATION_DATA, MAX_FRAGMENT, Record

MASTER, CLIENT, SERVER = bytes(range(48)), b"c" * 32, b"s" * 32
GCM, CCM8, CHACHA, CBC_SHA, CBC_SHA384 = 0x009C, 0xC0A0, 0xCCA8, 0x002F, 0xC028


def known(code: int) -> Suite:
    found = suite(code)
    assert found is not None
    return found


def record(data: bytes) -> Record:
    return Record(APPLICATION_DATA, 0x0303, data, ())


def additional(seq: int, length: int) -> bytes:
    return seq.to_bytes(8, "big") + bytes([APPLICATION_DATA, 3, 3]) + length.to_bytes(2, "big")


def aead(one: Suite, key: bytes, fixed: bytes, seq: int, clear: bytes) -> bytes:
    more = additional(seq, len(clear))
    if one.mode == "chacha20":
        nonce = bytes(a ^ b for a, b in zip(fixed, bytes(4) + seq.to_bytes(8, "big"), strict=True))
        return ChaCha20Poly1305(key).encrypt(nonce, clear, more)
    explicit = (77).to_bytes(8, "big")
    cipher = AESGCM(key) if one.mode == "gcm" else AESCCM(key, one.tag_length)
    return explicit + cipher.encrypt(fixed + explicit, clear, more)


def cbc(key: bytes, mac_key: bytes, digest: str, seq: int, clear: bytes, *, encrypt_then_mac: bool) -> bytes:
    def mac(data: bytes) -> bytes:
        return hmac.digest(mac_key, additional(seq, len(data)) + data, digest)

    data = clear if encrypt_then_mac else clear + mac(clear)
    padding = 15 - len(data) % 16
    data += bytes([padding]) * (padding + 1)
    vector = b"v" * 16
    encryptor = Cipher(AES(key), CBC(vector)).encryptor()
    out = vector + encryptor.update(data) + encryptor.finalize()
    return out + mac(out) if encrypt_then_mac else out


texts = st.binary(max_size=70)
numbers = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize("code", [GCM, CCM8, CHACHA])
@given(clear=texts, seq=numbers)
def test_aead(code: int, clear: bytes, seq: int) -> None:
    one = known(code)
    key, fixed = b"k" * one.key_length, b"f" * (12 if one.mode == "chacha20" else 4)
    data = aead(one, key, fixed, seq, clear)
    opener = Aead12(one, key, fixed)
    assert opener.open(record(data), seq) == (APPLICATION_DATA, clear)
    assert opener.open(record(data), seq ^ 1) is None
    assert opener.lead + len(clear) + one.tag_length == len(data)


@pytest.mark.parametrize("encrypt_then_mac", [True, False])
@pytest.mark.parametrize("digest", ["sha1", "sha384"])
@given(clear=texts, seq=numbers)
def test_cbc(digest: str, encrypt_then_mac: bool, clear: bytes, seq: int) -> None:
    data = cbc(b"k" * 16, b"m" * 20, digest, seq, clear, encrypt_then_mac=encrypt_then_mac)
    opener = Cbc12(b"k" * 16, b"m" * 20, digest, encrypt_then_mac=encrypt_then_mac)
    assert opener.open(record(data), seq) == (APPLICATION_DATA, clear)
    assert opener.open(record(data), seq ^ 1) is None
    # The other order of encryption and authentication does not fit.
    assert Cbc12(b"k" * 16, b"m" * 20, digest, encrypt_then_mac=not encrypt_then_mac).open(record(data), seq) is None


def openers() -> list[tuple[str, Aead12 | Cbc12, bytes]]:
    found: list[tuple[str, Aead12 | Cbc12, bytes]] = []
    for code in (GCM, CCM8, CHACHA):
        one = known(code)
        key, fixed = b"k" * one.key_length, b"f" * (12 if one.mode == "chacha20" else 4)
        found.append((one.name, Aead12(one, key, fixed), aead(one, key, fixed, 5, b"some text")))
    for order in (True, False):
        made = cbc(b"k" * 16, b"m" * 20, "sha1", 5, b"some text", encrypt_then_mac=order)
        found.append((f"cbc {order}", Cbc12(b"k" * 16, b"m" * 20, "sha1", encrypt_then_mac=order), made))
    return found


@pytest.mark.parametrize(
    ("name", "opener", "data"), openers(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_no_other_record_is_opened(name: str, opener: Aead12 | Cbc12, data: bytes) -> None:
    assert opener.open(record(data), 5) is not None
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x40
        assert opener.open(record(bytes(changed)), 5) is None, name
    for size in range(len(data)):
        assert opener.open(record(data[:size]), 5) is None, name
    assert opener.open(Record(22, 0x0303, data, ()), 5) is None


def expanded(digest: str, length: int) -> bytes:
    """P_hash of RFC 5246, step by step."""
    seed = b"key expansion" + SERVER + CLIENT
    chain = [seed]
    for _ in range(10):
        chain.append(hmac.new(MASTER, chain[-1], digest).digest())
    return b"".join(hmac.new(MASTER, one + seed, digest).digest() for one in chain[1:])[:length]


@pytest.mark.parametrize("code", [GCM, CHACHA, CBC_SHA, CBC_SHA384])
def test_keys_are_cut_in_the_order_of_the_rfc(code: int) -> None:
    """MAC keys, keys, initialisation vectors; of each the client's first."""
    one = known(code)
    client, server = protections12(one, MASTER, CLIENT, SERVER, encrypt_then_mac=True)
    block = expanded(one.digest, 200)
    if one.mode == "cbc":
        size = hashlib.new(one.mac).digest_size
        macs, keys = block[: 2 * size], block[2 * size :]
        for number, opener in enumerate((client, server)):
            key = keys[number * one.key_length :][: one.key_length]
            mac_key = macs[number * size :][:size]
            data = cbc(key, mac_key, one.mac, 0, b"text", encrypt_then_mac=True)
            assert opener.open(record(data), 0) == (APPLICATION_DATA, b"text")
        return
    fixed = 12 if one.mode == "chacha20" else 4
    vectors = block[2 * one.key_length :]
    for number, opener in enumerate((client, server)):
        key = block[number * one.key_length :][: one.key_length]
        data = aead(one, key, vectors[number * fixed :][:fixed], 0, b"text")
        assert opener.open(record(data), 0) == (APPLICATION_DATA, b"text")


def test_a_master_secret_has_48_bytes() -> None:
    with pytest.raises(ValueError, match="48 bytes"):
        protections12(known(GCM), MASTER[:-1], CLIENT, SERVER, encrypt_then_mac=False)


def test_the_largest_fragment_is_opened() -> None:
    one = known(GCM)
    data = aead(one, b"k" * 16, b"f" * 4, 0, bytes(MAX_FRAGMENT - 24))
    found = Aead12(one, b"k" * 16, b"f" * 4).open(record(data), 0)
    assert found is not None
    assert len(found[1]) == MAX_FRAGMENT - 24
