"""Exceptions of tasks, restored: Spark passes on only the text of a traceback within exceptions of its own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from kafkasniff import errors
from kafkasniff.errors import KafkasniffError

__all__ = ["first_line", "task_errors"]

_RAISED: Final = re.compile(r"^(?:kafkasniff\.errors\.)(\w+): (.+)$", re.MULTILINE)
_OUTPUT: Final = re.compile(r"^(OSError|PermissionError|FileNotFoundError|FileExistsError): (.+)$", re.MULTILINE)
_LAST: Final = re.compile(r"^\w[\w.]*(?:Error|Exception): .+$", re.MULTILINE)


@contextlib.contextmanager
def task_errors() -> Iterator[None]:
    """Re-raises our exceptions from tasks with their own type; OutputError if a task could not write."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        raised = _RAISED.findall(text)
        if raised:
            name, detail = raised[-1]
            kind = getattr(errors, name, KafkasniffError)
            raise kind(detail) from error
        output = _OUTPUT.findall(text)
        if output:
            raise errors.OutputError(f"a task of Spark could not read or write: {output[-1][1]}") from error
        last = _LAST.findall(text)
        raise KafkasniffError(f"Spark failed: {last[-1] if last else text.strip().splitlines()[0]}") from error


def first_line(error: Exception) -> str:
    """The message of an error, without the stack; in py4j's errors Java's message is on the second line."""
    lines = (str(error) or type(error).__name__).strip().splitlines()
    return lines[1].removeprefix(": ") if len(lines) > 1 and lines[1].startswith(": ") else lines[0]
