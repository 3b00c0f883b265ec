"""Fuzzing of every parser: coverage-guided with atheris, and in small numbers as tests. See docs/fuzzing.md.

Each family of parsers has a module with `one_input(data)`. It gives the bytes to its parsers and raises if they break a
promise: an undocumented exception, invented bytes, or a different result in other batches. A module also has `seeds()`,
initial inputs made of the shipped captures and vectors.

    python -m tests.fuzz all --executions 1000000
    python -m tests.fuzz messages records --seconds 60 --seed 7
    python -m tests.fuzz records --input build/fuzz/records/crash-…
"""
