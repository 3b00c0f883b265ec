"""Reviewed answers about shipped captures: text files that the tests compare with what kafkasniff says now.

``python -m tests.analysis.reviewed`` regenerates them. Before you commit a difference, find its reason in the capture
or in the client's log beside it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kafkasniff.analysis import find_question, make_parameters, question_names
from kafkasniff.analysis.export import Export, answer
from tests.analysis.test_accumulator import PARAMETERS
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

FOLDER = Path(__file__).parent / "answers"
SECURITY = (
    *("java-denied.pcap", "java-sasl.pcap", "kafkajs.pcap", "librdkafka-oauthbearer.pcap", "old-raw-sasl.pcap"),
    *("tls/tls-plaintext-client.pcap", "tls/tls-refused.pcap", "tls/tls-terminator-java.pcapng"),
    *("tls/tls12-kafka-python.pcapng", "tls/tls12-resumed.pcapng", "tls/tls13-kafka-python.pcapng"),
)
QUESTIONS = ("java-errors.pcap", "java-group-consumer.pcap", "kraft-three-brokers.pcap", "librdkafka-codecs.pcap")
BY: Mapping[str, Mapping[str, Any]] = {
    **PARAMETERS,
    "latency": {"by": "api,client,software"},
    "versions": {"target": "4.0", "all": True},
    "batching": {"direction": "produce"},
}


def security(name: str) -> str:
    """Who connects as whom, and the findings about that, as `security` prints them."""
    found = kafkasniff("security", "--quiet", "--color", "never", f"captures/{name}")
    return f"exit code {found.code}\n{found.text}{found.err}"


def plain(value: Any) -> Any:
    """Floats with as many digits as all machines agree on."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return value if isinstance(value, int | list | None) else str(value)


def questions(name: str) -> str:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        found = kafkasniff("export", f"captures/{name}", "--quiet", "-o", f"{folder}/out")
        assert found.code == 0, found.err
        export = Export.open(f"{folder}/out")
        for question in map(find_question, question_names()):
            asked = question(make_parameters(question, dict(BY.get(question.name, {}))))
            assert answer(export, asked) == []
            lines.append(f"== {question.name}")
            for row in asked.result().to_pylist():
                lines.append(json.dumps({key: plain(value) for key, value in row.items()}, ensure_ascii=False))
    return "\n".join(lines) + "\n"


ANSWERS: dict[str, Callable[[], str]] = {
    **{f"security-{name.rpartition('/')[2]}": partial(security, name) for name in SECURITY},
    **{f"questions-{name}": partial(questions, name) for name in QUESTIONS},
}
"""By the names of their files. The current folder must be the checkout."""


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def main() -> None:
    os.chdir(ROOT)
    FOLDER.mkdir(exist_ok=True)
    for name, make in ANSWERS.items():
        file_of(name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
