"""Settings of Sphinx for `make docs`: a site with the tree of the repository, so that links are the same."""

from __future__ import annotations

project = "kafkasniff"
author = "The kafkasniff authors"
html_title = "kafkasniff"
html_theme = "furo"
html_show_sphinx = False
html_extra_path = ["start"]  # index.html, which leads to the README
html_copy_source = False
html_show_copyright = False

extensions = ["myst_parser"]
root_doc = "docs/site/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/reference/*.md",  # made by `python -m tests.reference`
    "docs/site/index.md",
    "dissectors/*.md",
    "captures/*.md",
    "captures/*/README.md",
    "benchmarks/*.md",
    "tests/*/README.md",
]
exclude_patterns = [".venv", "build", "benchmarks/data", "kafkasniff"]
# As on GitHub: every heading can be linked to.
myst_heading_anchors = 4
# What blocks are cut to (`…`) is not valid JSON.
suppress_warnings = ["misc.highlighting_failure"]
