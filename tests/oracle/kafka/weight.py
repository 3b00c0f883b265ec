"""Memory of what waits in a connection that Python follows."""

from __future__ import annotations

from typing import Final

__all__ = ["EARLY_BYTES", "FRAME_BYTES", "PROBLEM_BYTES", "REQUEST_BYTES", "SEARCHED_SEGMENT_BYTES"]

FRAME_BYTES: Final = 420
"""Memory of a waiting frame, without its bytes."""
EARLY_BYTES: Final = 1_400
"""Memory of a response that waits for its request, without its bytes: its frame, and its index entry."""
REQUEST_BYTES: Final = 1_700
"""Memory of a request that waits for its response, without its decoded fields."""
PROBLEM_BYTES: Final = 300
"""Memory of a problem that waits for the verdict."""
SEARCHED_SEGMENT_BYTES: Final = 200
"""Memory of a segment that is searched for frames, without its bytes."""
