"""Options for sharing output without its payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.redact.payload import Payload

__all__ = ["payload_options", "take_payload"]

RANDOM_BYTES: Final = 32
"""Bytes of a salt generated for one run."""
MIN_SALT: Final = 16
"""Minimum size of a salt file: shorter salts could be brute-forced."""
MAX_SALT: Final = 1 << 20

_Command = TypeVar("_Command", bound=Callable[..., Any])


def payload_options(command: _Command) -> _Command:
    """Options for keys and values of records, and values of their headers."""
    for option in (
        click.option(
            "--hash-salt",
            metavar="FILE",
            help="Salt for --hash-payload; runs with the same salt have comparable hashes.",
        ),
        click.option(
            "--hash-payload", is_flag=True, help="Show salted hashes instead of the keys and values of records."
        ),
        click.option("--no-payload", is_flag=True, help="Show only the lengths of keys and values of records."),
    ):
        command = option(command)
    return command


def take_payload(options: dict[str, Any]) -> Payload:
    """The setting of the options, which are removed from `options`. Raises UsageError."""
    from kafkasniff.redact.payload import SHOWN, Payload

    dropped, hashed, path = (options.pop(name) for name in ("no_payload", "hash_payload", "hash_salt"))
    if path is not None and not hashed:
        raise UsageError("--hash-salt needs --hash-payload")
    if dropped and hashed:
        raise UsageError("--no-payload and --hash-payload cannot be combined")
    if dropped:
        return Payload("dropped")
    if not hashed:
        return SHOWN
    if path is not None:
        return Payload.hashed(_salt(path))
    import secrets

    return Payload.hashed(secrets.token_bytes(RANDOM_BYTES))


def _salt(path: str) -> bytes:
    """A salt from a file, all of it. Raises UsageError."""
    import hashlib

    from kafkasniff.redact.payload import SALT_BYTES

    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_SALT + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"cannot read {path}: {reason or error}") from error
    if not MIN_SALT <= len(data) <= MAX_SALT:
        raise UsageError(f"{path}: a salt has at least {MIN_SALT} bytes and at most {MAX_SALT >> 20} MiB")
    return hashlib.blake2b(data, digest_size=SALT_BYTES).digest()
