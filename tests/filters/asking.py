"""Evaluate a predicate for an exchange."""

from __future__ import annotations

from typing import Any

from kafkasniff import filters
from kafkasniff.filters import Candidate
from kafkasniff.model import Message
from tests.sinks.messages import message


def ask(predicate: Any, request: Message | None = None, response: Message | None = None, **options: Any) -> Any:
    if request is None and response is None:
        request, response = message(), message("response")
    return filters.compiled(predicate)(Candidate(request=request, response=response, **options))
