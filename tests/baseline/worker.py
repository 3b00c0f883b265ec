"""Runs commands with the kafkasniff of the interpreter that runs this file, and prints a hash of each output.

Started by `python -m tests.baseline` in the environment of any build, so it imports nothing of the tests. Reads tasks
`{"input", "output", "chunk"}` as lines of JSON, and answers each with the same and a hash.
"""

import hashlib
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

import kafkasniff
from kafkasniff.capture.timeline import source
from kafkasniff.cli.environment import Environment
from kafkasniff.cli.main import run

COMMANDS = {
    "text": ["decode", "--color", "never"],
    "verbose": ["decode", "-v", "--color", "never"],
    "json": ["decode", "--format", "json"],
    "csv": ["decode", "--format", "csv"],
    "check": ["check", "--format", "json"],
    "stats": ["stats", "--format", "json"],
    "timing": ["timing", "--format", "json"],
    "security": ["security", "--format", "json"],
    "audit": ["audit", "--target", "4.0", "--format", "json"],
}


def output_of(name: str, kind: str) -> bytes:
    """All that a command prints, and its exit code; of an export, the rows of all tables."""
    if kind == "tables":
        return tables_of(name)
    code, out, err = executed([*COMMANDS[kind], name])
    return out + f"\n-- stderr\n{err}\n-- exit code {code}\n".encode()


def executed(arguments: list[str]) -> tuple[int, bytes, str]:
    out, err = io.BytesIO(), io.StringIO()
    code = run(arguments, Environment(stdin=io.BytesIO(), stdout=out, stderr=err, environ={}))
    return int(code), out.getvalue(), err.getvalue()


def tables_of(name: str) -> bytes:
    import pyarrow.parquet as pq

    folder = Path(tempfile.mkdtemp(prefix="kafkasniff-baseline-"))
    try:
        code, _, err = executed(["export", name, "--output", str(folder / "out")])
        lines = [f"exit code {code}", err.replace(str(folder), "")]
        for table in sorted(path for path in (folder / "out").glob("*") if path.is_dir()):
            rows = [row for file in sorted(table.rglob("*.parquet")) for row in pq.ParquetFile(file).read().to_pylist()]
            lines += [table.name, *sorted(json.dumps(row, default=repr) for row in rows)]
        return "\n".join(lines).encode()
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Answer tasks until there are no more."""
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    answers = sys.stdout
    print(json.dumps({"kafkasniff": kafkasniff.__file__}), file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        source.open_captures.__kwdefaults__["chunk_size"] = task["chunk"]
        try:
            found = output_of(task["input"], task["output"])
        except Exception as error:
            found = f"{type(error).__name__}: {error}".encode()
        if kept is not None:
            (kept / f"{task['input']}.{task['output']}.{task['chunk']}").write_bytes(found)
        answer = {**task, "hash": hashlib.sha256(found).hexdigest()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
