from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.person import Person


@pytest.fixture
def person() -> Iterator[Person]:
    somebody = Person()
    try:
        yield somebody
    finally:
        somebody.leaves()
