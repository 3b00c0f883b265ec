"""Certificates for brokers with TLS and their clients: made up, made once, kept in the cache folder."""

from __future__ import annotations

import datetime
import ipaddress
import shutil
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from .distribution import cache_directory

FOLDER = cache_directory() / "certificates"
"""Where they are, once ``made`` was called.

``ca.pem``: the authority; ``other-ca.pem``: one that has signed none of them. ``broker-ecdsa.pem``, ``broker-rsa.pem``
(for broker.example, localhost and 127.0.0.1) and ``client.pem``: a private key (PKCS #8) and its certificate, as
Kafka's PEM key stores (KIP-651) and Python's ``load_cert_chain`` take them in one file.
"""

_ORGANISATION = "Captures"
_START = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2125, 1, 1, tzinfo=datetime.UTC)

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def made() -> Path:
    """``FOLDER``, with its files; it appears whole."""
    if FOLDER.is_dir():
        return FOLDER
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".certificates-", dir=FOLDER.parent))
    try:
        for name in ("ca", "other-ca"):
            key = ec.generate_private_key(ec.SECP256R1())
            authority = _certificate(_name(f"{name}.example"), key, _name(f"{name}.example"), key, authority=True)
            (aside / f"{name}.pem").write_bytes(authority.public_bytes(Encoding.PEM))
            if name == "ca":
                signer = key
        for name, subject in (("broker-ecdsa", "broker"), ("broker-rsa", "broker"), ("client", "client")):
            own: Key = (
                rsa.generate_private_key(65537, 2048)
                if name.endswith("rsa")
                else ec.generate_private_key(ec.SECP256R1())
            )
            signed = _certificate(_name(f"{subject}.example"), own, _name("ca.example"), signer)
            file = aside / f"{name}.pem"
            file.touch(0o600)
            private = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            file.write_bytes(private + signed.public_bytes(Encoding.PEM))
        if not FOLDER.is_dir():  # else another process was quicker
            aside.rename(FOLDER)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return FOLDER


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _certificate(
    subject: x509.Name, key: Key, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, *, authority: bool = False
) -> x509.Certificate:
    names = [x509.DNSName("broker.example"), x509.DNSName("localhost")]
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(_END)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
    return builder.sign(signer, SHA256())
