"""Exceptions. Only misuse raises; bad input is a `Problem`, never an exception.

KafkasniffError
├── UsageError          an invalid option or argument                     (exit code 2)
├── OutputError         the output cannot be written                       (exit code 5)
├── MissingPartError    the kernel, privileges, Java or an extra are missing (exit code 5)
│   ├── MissingKernelError  no native kernel that fits the package          (exit code 5)
│   ├── MissingExtraError   a package of an extra is not installed         (exit code 5)
│   └── OutOfMemoryError    there is not enough memory                     (exit code 5)
├── CaptureError        a capture or interface cannot be opened            (exit code 3)
│   └── UnreachableError    a remote file system does not answer           (exit code 3)
└── DefinitionError     a file in dissectors/ that does not parse          (exit code 70)
"""

import errno


class KafkasniffError(Exception):
    """Base of all exceptions that kafkasniff raises on purpose; `str()` of it is one line for a person."""


class UsageError(KafkasniffError):
    """An invalid option or argument."""


class OutputError(KafkasniffError):
    """The output cannot be written."""


class MissingPartError(KafkasniffError):
    """Something that has to be there is missing: the native kernel, privileges, Java, an extra, memory."""


class MissingKernelError(MissingPartError):
    """The native kernel is missing or does not fit the package. Only the definitions of APIs can be read without it."""


class MissingExtraError(MissingPartError):
    """A package of an extra is not installed."""

    def __init__(self, user: str, package: str, extra: str) -> None:
        """`user`: the option, command or feature that needs the package."""
        super().__init__(f"{user} needs the package {package}: pip install 'kafkasniff[{extra}]'")


class OutOfMemoryError(MissingPartError):
    """The process, or one of its workers, did not get the memory that it asked for.

    Like missing privileges, this is a limit of the machine: neither a mistake in kafkasniff nor a full disk.
    """


class CaptureError(KafkasniffError):
    """A capture or an interface cannot be opened, or is not a capture at all."""


class UnreachableError(CaptureError):
    """A remote file system does not answer as it should, which says nothing about the captures in it."""


class DefinitionError(KafkasniffError):
    """A definition file does not parse; the message names the file and the line."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or its cause, is a lack of memory.

    NumPy's and Arrow's errors are MemoryErrors; if the kernel refuses memory (mmap, fork), it is an OSError.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError | OutOfMemoryError):
            return True
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            return True
        cause = cause.__cause__
    return False
