"""Exceptions. Only misuse raises; bad input is a `Problem`, never an exception.

KafkasniffError
├── UsageError          an option or argument that makes no sense          (exit code 2)
├── OutputError         the output cannot be written                       (exit code 5)
├── MissingPartError    privileges, Java or Spark are missing              (exit code 5)
├── CaptureError        a capture or interface cannot be opened            (exit code 3)
└── DefinitionError     a file in dissectors/ that does not parse          (exit code 70)
"""

__all__ = ["CaptureError", "DefinitionError", "KafkasniffError", "MissingPartError", "OutputError", "UsageError"]


class KafkasniffError(Exception):
    """Base of all exceptions that kafkasniff raises on purpose; `str()` of it is one line for a person."""


class UsageError(KafkasniffError):
    """An option or argument that makes no sense."""


class OutputError(KafkasniffError):
    """The output cannot be written."""


class MissingPartError(KafkasniffError):
    """Something that the machine has to provide is missing: privileges, Java, Spark."""


class CaptureError(KafkasniffError):
    """A capture or an interface cannot be opened, or is not a capture at all."""


class DefinitionError(KafkasniffError):
    """A definition file does not parse; the message names the file and the line."""
