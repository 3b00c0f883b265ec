"""`python -m tests.integration`: download Kafka's code and Delta Lake for the tests into the cache (750 MB, once)."""

from __future__ import annotations

import sys

from captures.record.distribution import SetupError
from tests.integration.run import fetch

try:
    fetch()
except SetupError as error:
    sys.exit(str(error))
