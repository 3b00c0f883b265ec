"""`python -m tests.integration`: download what the tests with Kafka's own code need into the cache (250 MB, once)."""

from __future__ import annotations

import sys

from captures.record.distribution import SetupError
from tests.integration.run import fetch

try:
    fetch()
except SetupError as error:
    sys.exit(str(error))
