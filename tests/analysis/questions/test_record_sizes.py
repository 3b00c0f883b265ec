from __future__ import annotations

from tests.analysis.tables import answers, pick, record


def test_sizes_by_topic_and_direction() -> None:
    rows = [record("a", key=b"k" * size, value=b"v" * size * 10) for size in range(1, 11)]
    rows += [record("a", key=None, value=None), record("a", control="commit")]
    rows.append(record("a", api="Fetch", direction="response", headers=[{"key": "ab", "value": b"cd"}]))
    both = answers("record-sizes", records=rows)
    assert pick(both, "topic", "direction", "records", "null_keys", "null_values") == [
        ("a", "request", 11, 1, 1),
        ("a", "response", 1, 0, 0),
    ]
    sent, got = both
    assert [sent[name] for name in ("key_p50", "key_p99", "key_max", "value_p50", "value_max")] == [5, 10, 10, 50, 100]
    assert (sent["headers_max"], got["headers_p50"]) == (0, 4)
    assert pick(answers("record-sizes", records=rows, direction="response"), "direction") == [("response",)]


def test_a_topic_of_null_values_has_no_sizes_of_them() -> None:
    (found,) = answers("record-sizes", records=[record("a", value=None)])
    assert (found["key_p50"], found["value_p50"], found["value_max"]) == (1, None, None)
