"""kafkasniff: wire-traffic inspector and packet decoder for Apache Kafka.

    >>> import kafkasniff
    >>> for exchange in kafkasniff.read("capture.pcapng"):
    ...     print(exchange.request.api, exchange.status, exchange.latency_ns)

`read` yields the exchanges of captures; `Inspector` takes packets as they come; `decode_request` and `decode_response`
take single messages. What they yield are the nouns of `kafkasniff.model`. Parts are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.errors import (
        CaptureError,
        DefinitionError,
        KafkasniffError,
        MissingPartError,
        OutputError,
        UsageError,
    )
    from kafkasniff.library import decode_request, decode_response, read
    from kafkasniff.model import Endpoint, ErrorCode, Exchange, Message, Problem, SaslToken, Summary
    from kafkasniff.packets import PacketBatch

__version__ = "1.1.0.dev0"

__all__ = [
    "CaptureError",
    "DefinitionError",
    "Endpoint",
    "ErrorCode",
    "Exchange",
    "Inspector",
    "KafkasniffError",
    "Message",
    "MissingPartError",
    "OutputError",
    "PacketBatch",
    "Problem",
    "SaslToken",
    "Summary",
    "UsageError",
    "__version__",
    "decode_request",
    "decode_response",
    "read",
]

_HOMES: Final = {
    "kafkasniff.errors": (
        "CaptureError",
        "DefinitionError",
        "KafkasniffError",
        "MissingPartError",
        "OutputError",
        "UsageError",
    ),
    "kafkasniff.engine.inspector": ("Inspector",),
    "kafkasniff.library": ("decode_request", "decode_response", "read"),
    "kafkasniff.model": ("Endpoint", "ErrorCode", "Exchange", "Message", "Problem", "SaslToken", "Summary"),
    "kafkasniff.packets": ("PacketBatch",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
