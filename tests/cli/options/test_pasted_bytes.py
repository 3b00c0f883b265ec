from __future__ import annotations

import base64
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.cli.commands.decode_bytes import bytes_from_stdin, bytes_from_text, without_prefix
from kafkasniff.errors import UsageError

DATA = bytes.fromhex("0012000300000001000672646b61666b6100")


@pytest.mark.parametrize(
    "text",
    [
        DATA.hex(),
        DATA.hex().upper(),
        "0x" + DATA.hex(),
        DATA.hex(" "),
        DATA.hex(":"),
        DATA.hex(" ", 4),
        "\n".join([DATA.hex(" ")[:24], DATA.hex(" ")[24:]]),
        "[" + ", ".join(f"0x{byte:02x}" for byte in DATA) + "]",
        "".join(f"\\x{byte:02x}" for byte in DATA),
        base64.b64encode(DATA).decode(),
        base64.urlsafe_b64encode(DATA).decode().rstrip("="),
    ],
)
def test_hex_and_base64_in_their_many_forms(text: str) -> None:
    assert bytes_from_text(text) == DATA
    assert bytes_from_stdin(text.encode() + b"\n") == DATA


@pytest.mark.extended
@pytest.mark.parametrize(
    ("program", "arguments"), [("xxd", []), ("xxd", ["-g1"]), ("hexdump", ["-C"]), ("od", ["-A", "x", "-t", "x1z"])]
)
@pytest.mark.parametrize("size", [1, 16, 17, 100])
def test_hexdumps_of_other_programs(program: str, arguments: list[str], size: int) -> None:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    data = (DATA * 9)[:size]
    dump = subprocess.run([path, *arguments], input=data, capture_output=True, check=True).stdout.decode()
    if program in {"hexdump", "od"}:
        # Their last line is the end offset alone.
        dump = "\n".join(dump.splitlines()[:-1])
    assert bytes_from_text(dump) == data


@given(st.binary(min_size=1))
def test_encoded_bytes_are_restored(data: bytes) -> None:
    assert bytes_from_text(data.hex()) == data
    text = base64.b64encode(data).decode()
    # Text that looks like hex is hex; nothing else is lost.
    if not all(character in "0123456789abcdefABCDEF" for character in text) or len(text) % 2:
        assert bytes_from_text(text) == data


@pytest.mark.parametrize("text", ["", "   ", "hello world!", "abcde!", "äöü", "a"])
def test_neither_hex_nor_base64(text: str) -> None:
    with pytest.raises(UsageError):
        bytes_from_text(text)


def test_stdin_may_be_raw() -> None:
    assert bytes_from_stdin(DATA) == DATA
    assert bytes_from_stdin(b"no hex, just text") == b"no hex, just text"
    with pytest.raises(UsageError):
        bytes_from_stdin(b"")


def test_a_length_prefix_is_removed_only_where_it_fits_exactly() -> None:
    assert without_prefix(len(DATA).to_bytes(4, "big") + DATA) == (DATA, True)
    assert without_prefix(DATA) == (DATA, False)
    for wrong in (len(DATA) - 1, len(DATA) + 1):
        framed = wrong.to_bytes(4, "big") + DATA
        assert without_prefix(framed) == (framed, False)
    assert without_prefix(b"\0\0\0\0") == (b"\0\0\0\0", False)


@given(st.text())
def test_any_text_is_decoded_or_refused(text: str) -> None:
    try:
        bytes_from_text(text)
    except UsageError:
        return
