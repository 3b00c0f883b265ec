"""Fuzzing of every parser, coverage-guided with atheris, and in small numbers as tests (docs/fuzzing.md). Each family
of parsers is a module with `seeds()` and `one_input(data)`, which raises if a promise is broken."""
