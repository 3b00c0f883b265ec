"""Names and racks of addresses from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.enrich import hosts as module
from kafkasniff.enrich.hosts import MAX_HOSTS_BYTES, Hosts
from kafkasniff.errors import UsageError
from tests.choice import examples

FILE = """\
# what stands first counts
127.0.0.1   localhost
127.0.0.1   another
127.0.0.1:9092  broker-1 broker-1.internal rack=eu-1a   # a comment
10.0.0.5\tbilling zone=eu-1b

[fd00::0:7]:9092  broker-7
fd00::7  seven
::ffff:10.0.0.6  mapped
10.0.0.0/8  rack=wide
10.0.0.0/24  rack=narrow
fd00::/16  rack=six
10.0.0.9 rack=alone
"""


def test_a_file() -> None:
    hosts = Hosts.parse(FILE)
    assert hosts.name("127.0.0.1") == "localhost"
    assert hosts.name("127.0.0.1", 9092) == "broker-1"
    assert hosts.name("127.0.0.1", 9093) == "localhost"
    assert (hosts.name("10.0.0.5"), hosts.rack("10.0.0.5")) == ("billing", "eu-1b")
    assert (hosts.name("fd00::7"), hosts.name("fd00::7", 9092)) == ("seven", "broker-7")
    assert hosts.name("10.0.0.6") == "mapped"
    assert (hosts.name("10.0.0.9"), hosts.rack("10.0.0.9")) == (None, "alone")
    assert [hosts.rack(one) for one in ("10.0.0.77", "10.1.0.77", "fd00::9", "192.0.2.1")] == [
        "narrow",
        "wide",
        "six",
        None,
    ]
    assert hosts.rack("127.0.0.1", 9092) == "eu-1a"
    assert (hosts.name(None), hosts.rack(None), hosts.rack("no address")) == (None, None, None)
    assert hosts.names["[fd00::7]:9092"] == "broker-7"
    system = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\n"
    assert Hosts.parse(system).name("::1") == "localhost"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("10.0.0.5", "10.0.0.5 has neither a name nor a rack"),
        ("broker-1 10.0.0.5", "broker-1 is not an address"),
        ("10.0.0.5:0 a", "'0' is not a port"),
        ("10.0.0.5:99999999999999999999 a", "is not a port"),
        ("[::1 a", "[ADDRESS]:PORT"),
        ("10.0.0.5 a rack=", "the rack has no name"),
        ("10.0.0.5 a rack=x zone=y", "there are two racks"),
        ("10.0.0.5 a colour=red", "colour= is unknown: use rack="),
        ("10.0.0.0/24 name", "is a network"),
        ("10.0.0.1/24 rack=x", "not a network"),
        ("10.0.0.5 a\x1b[31m", "unprintable"),
        ("10.0.0.5 " + "a" * 256, "a name of 256 characters"),
    ],
)
def test_invalid_lines_are_reported_with_their_number(line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Hosts.parse(f"10.0.0.1 one\n\n{line}\n", "names.txt")
    assert str(caught.value).startswith("names.txt:3: ")
    assert said in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        Hosts.load(str(tmp_path / "none"))
    path = tmp_path / "hosts"
    path.write_bytes(b"10.0.0.1 one\n10.0.0.2 \xff\n")
    with pytest.raises(UsageError, match="hosts:2: not UTF-8"):
        Hosts.load(str(path))
    path.write_bytes(b"\xef\xbb\xbf10.0.0.1 one\r\n")
    assert Hosts.load(str(path)).name("10.0.0.1") == "one"
    path.write_bytes(b"#" * (MAX_HOSTS_BYTES + 1))
    with pytest.raises(UsageError, match="longer than"):
        Hosts.load(str(path))


def test_networks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NETWORKS", 50)
    lines = [f"10.{number}.0.0/24 rack=r" for number in range(50)]
    Hosts.parse("\n".join(lines))
    with pytest.raises(UsageError, match=":51: more than"):
        Hosts.parse("\n".join([*lines, "192.0.2.0/24 rack=r"]))


@examples(15)
@given(st.text(max_size=60))
def test_anything_is_a_file_or_a_sentence(text: str) -> None:
    said = ""
    hosts = Hosts()
    try:
        hosts = Hosts.parse(text)
    except UsageError as error:
        said = str(error)
    assert said.startswith("hosts:") or not said
    assert hosts.rack("10.0.0.1") is None or hosts.rack("10.0.0.1")
