"""docs/analyses.md documents every question with its current options and columns."""

from __future__ import annotations

import re

import pytest

from kafkasniff.analysis import find_question, parameters_of, question_names
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "analyses.md").read_text()
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.M)[1:]}
TYPES = {"int64": "bigint", "int32": "int", "bool": "boolean", "list<element: string>": "array&lt;string&gt;"}


def test_the_page_lists_exactly_the_questions() -> None:
    assert list(SECTIONS)[1:] == list(question_names())


@pytest.mark.parametrize("name", question_names())
def test_columns(name: str) -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\S+) \|", SECTIONS[name], re.M)
    written = [(column, kind) for columns, kind in rows for column in re.findall(r"`(\w+)`", columns)]
    found = [(field.name, str(field.type)) for field in find_question(name)().result().schema]
    assert written == [(column, TYPES.get(kind, kind.split("[")[0])) for column, kind in found]


@pytest.mark.parametrize("name", question_names())
def test_options_and_their_defaults(name: str) -> None:
    text = SECTIONS[name].partition("| column |")[0]
    assert set(re.findall(r"`--([a-z-]+)", text)) - {"no-json", "hosts"} == {
        one.name.replace("_", "-") for one in parameters_of(find_question(name))
    }
    for one in parameters_of(find_question(name)):
        for default in (one.default_text or "").split(","):
            assert default in text, (one.name, default)
