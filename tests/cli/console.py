"""Run the command line in this process, with captured streams."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.main import run


@dataclasses.dataclass
class Result:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def environment(stdin: bytes = b"", **options: Any) -> Environment:
    options = {"stdout": io.BytesIO(), "stderr": io.StringIO(), "environ": {}, **options}
    return Environment(stdin=io.BytesIO(stdin), **options)


def kafkasniff(*arguments: object, stdin: bytes = b"", **options: Any) -> Result:
    """Run a command line. `options` are fields of `Environment`."""
    world = environment(stdin, **options)
    code = run([str(argument) for argument in arguments], world)
    out, err = world.stdout, world.stderr
    return Result(
        int(code),
        out.getvalue() if isinstance(out, io.BytesIO) else b"",
        err.getvalue() if isinstance(err, io.StringIO) else "",
    )
