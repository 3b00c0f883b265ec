"""Benchmarks import only what is there."""

from __future__ import annotations

import importlib

from tests.conftest import ROOT


def test_what_benchmarks_import_is_there() -> None:
    absent = set()
    for path in sorted((ROOT / "benchmarks").glob("[a-z]*.py")):
        try:
            importlib.import_module(f"benchmarks.{path.stem}")
        except ModuleNotFoundError as error:
            absent.add(error.name)
    # It has an environment of its own.
    assert absent <= {"confluent_kafka"}
