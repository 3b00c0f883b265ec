"""What exit codes mean."""

from __future__ import annotations

import re

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.exit_codes import EXIT_CODES, EXIT_ORDER


def test_each_code_is_described_once() -> None:
    numbers = [int(one) for codes, _ in EXIT_CODES for one in codes.split(", ")]
    assert sorted(numbers) == sorted({int(code) for code in Exit})


def test_the_order_has_every_code_but_success() -> None:
    assert sorted(map(int, re.findall(r"\d+", EXIT_ORDER))) == sorted(int(code) for code in Exit if code)
