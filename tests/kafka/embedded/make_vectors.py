"""``python -m tests.kafka.embedded.make_vectors``: write group_vectors.jsonl again (Java 17, Maven)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from captures.record.distribution import java

FOLDER = Path(__file__).parent
FILE = FOLDER / "group_vectors.jsonl"
JARS = (
    *(
        f"org.apache.kafka:{name}:4.3.1"
        for name in ("kafka-clients", "kafka-streams", "connect-api", "connect-runtime")
    ),
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:slf4j-nop:1.7.36",
)
TIMEOUT_S = 600


def made() -> str:
    """The vectors, sorted; raises CalledProcessError if Maven or Java fails."""
    with tempfile.TemporaryDirectory(prefix="group-vectors-") as folder:
        for jar in JARS:
            command = ["mvn", "--quiet", "--batch-mode", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]
            subprocess.run(
                [*command, f"-Dartifact={jar}", f"-DoutputDirectory={folder}"], check=True, timeout=TIMEOUT_S
            )
        program = str(FOLDER / "java" / "EmbeddedVectors.java")
        run = [java(), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", f"{folder}/*", program]
        out = subprocess.run(run, check=True, stdout=subprocess.PIPE, timeout=TIMEOUT_S).stdout
    return "".join(sorted(out.decode().splitlines(keepends=True)))


if __name__ == "__main__":
    FILE.write_text(made(), encoding="utf-8")
