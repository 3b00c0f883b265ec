"""Fuzzing of every parser: coverage-guided with atheris, and in small numbers as tests. docs/fuzzing.md tells how.

Each family of parsers has a module with `one_input(data)`, which gives the bytes to its parsers and raises where one of
them does what none may: an exception that is not documented, bytes made up, another result in other batches. A module
also has `seeds()`, inputs to begin with, made of the shipped captures and vectors.

    python -m tests.fuzz all --executions 1000000
    python -m tests.fuzz messages records --seconds 60 --seed 7
    python -m tests.fuzz records --input build/fuzz/records/crash-…
"""
