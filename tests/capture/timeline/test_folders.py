from __future__ import annotations

import gzip
import lzma
import os
import re
from pathlib import Path

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.timeline.folders import with_folders
from kafkasniff.errors import CaptureError
from tests.capture.files import pcap, pcap_header
from tests.capture.segments import frames

NOTHING = pcap_header()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b.pcap").write_bytes(pcap(frames(3)))
    (tmp_path / "a.pcap12").write_bytes(pcap(frames(2)))
    (tmp_path / "c").write_bytes(lzma.compress(pcap(frames(1))))
    (tmp_path / "notes.txt").write_bytes(b"about these captures")
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"x" * 10_000))
    (tmp_path / ".hidden.pcap").write_bytes(NOTHING)
    (tmp_path / "_temporary.pcap").write_bytes(NOTHING)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "d.pcap").write_bytes(NOTHING)
    os.mkfifo(tmp_path / "pipe.pcap")
    return tmp_path


def test_content_decides_what_is_a_capture(folder: Path) -> None:
    assert [Path(path).name for path in with_folders([str(folder)])] == ["a.pcap12", "b.pcap", "c"]


def test_files_and_folders_mix_in_their_order(folder: Path) -> None:
    inner = str(folder / "inner" / "d.pcap")
    assert with_folders(["-", inner, str(folder)]) == ["-", inner, *with_folders([str(folder)])]


def test_a_folder_is_opened_as_its_captures(folder: Path) -> None:
    with open_captures([folder]) as source:
        assert sum(batch.packets for batch in source) == 6


def test_a_folder_without_captures(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"nothing here")
    with pytest.raises(CaptureError, match=re.escape(str(tmp_path)) + ": contains neither captures"):
        with_folders([str(tmp_path)])


def test_addresses_and_patterns(folder: Path, tmp_path: Path) -> None:
    assert with_folders([f"file://{folder}/b.pcap", f"{folder}/?.pcap*"]) == [
        f"{folder}/b.pcap",
        f"{folder}/a.pcap12",
        f"{folder}/b.pcap",
    ]
    # A file of that name is not a pattern.
    odd = tmp_path / "[1].pcap"
    odd.write_bytes(NOTHING)
    assert with_folders([str(odd)]) == [str(odd)]
    with pytest.raises(CaptureError, match="no file matches"):
        with_folders([f"{folder}/*.cap"])
    # Whether a remote capture is there is not asked yet.
    assert with_folders(["s3://bucket/a.pcap"]) == ["s3://bucket/a.pcap"]
