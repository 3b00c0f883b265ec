"""The summary at the end of a message's line: the few fields that matter for its API."""
