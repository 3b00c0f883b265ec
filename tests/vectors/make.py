"""Makes the vectors: Maven builds the Java program and fetches the releases, Java runs it, xz keeps what it prints."""

from __future__ import annotations

import lzma
import subprocess
import tempfile
from pathlib import Path

from captures.record.distribution import COVERED_VERSION, java
from tests.vectors.reader import FOLDER

RELEASES = (COVERED_VERSION, "4.3.1", "4.0.2", "3.9.2", "3.4.1", "3.2.3", "2.8.2")
"""The releases in pom.xml, the one to prefer first: the newest, which the definitions are of, then those that still
have what it has lost, or of which alone something is published."""

MAVEN_TIMEOUT_S = 900
JAVA_TIMEOUT_S = 300


def made() -> bytes:
    """The vectors as lines of JSON, not compressed, by Java 17 and Maven; CalledProcessError where one fails."""
    with tempfile.TemporaryDirectory(prefix="kafka-vectors-") as folder:
        build = [
            "mvn",
            "--quiet",
            "--batch-mode",
            "-f",
            str(FOLDER / "pom.xml"),
            f"-Doutput.folder={folder}",
            f"-Dnewest={RELEASES[0]}",
        ]
        subprocess.run([*build, "process-classes"], check=True, timeout=MAVEN_TIMEOUT_S)
        output = Path(folder)
        places = [str(output / name) for name in ("classes", "libraries", "releases")]
        command = [
            java(),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            places[0],
            "kafkasniff.vectors.MakeVectors",
            *places,
            *RELEASES,
        ]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=JAVA_TIMEOUT_S).stdout


def compressed(lines: bytes) -> bytes:
    """The file's bytes; the same lines give the same file with the same liblzma."""
    return lzma.compress(lines, preset=9 | lzma.PRESET_EXTREME)
