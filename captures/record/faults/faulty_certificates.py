"""Certificates that clients refuse, and the authority that signs them: created for one recording, in its folder."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_START = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
_EXPIRED = datetime.datetime(2025, 6, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2125, 1, 1, tzinfo=datetime.UTC)


def make(folder: Path) -> Path:
    """Write `ca.pem` and `other-ca.pem`; `good.pem`, `expired.pem` and `elsewhere.pem` (key and certificate).

    The last is for kafka.example alone, the others for localhost and 127.0.0.1, too.
    """
    folder.mkdir()
    signers = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "other-ca")}
    for name, key in signers.items():
        authority = _certificate(f"{name}.example", key, f"{name}.example", key, _END, [])
        (folder / f"{name}.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    local = ["broker.example", "localhost"]
    for name, end, names in (
        ("good", _END, local),
        ("expired", _EXPIRED, local),
        ("elsewhere", _END, ["kafka.example"]),
    ):
        own = ec.generate_private_key(ec.SECP256R1())
        signed = _certificate("broker.example", own, "ca.example", signers["ca"], end, names)
        private = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.pem").write_bytes(private + signed.public_bytes(Encoding.PEM))
    return folder


def _certificate(  # noqa: PLR0917 - what a certificate is made of
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    end: datetime.datetime,
    names: list[str],
) -> x509.Certificate:
    """`names`: what it is for, with 127.0.0.1 where localhost is among them; none: it is an authority."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
    )
    if names:
        found: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        if "localhost" in names:
            found.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
    return builder.sign(signer, SHA256())
