"""Columns of record batches: unnested, labelled, rounded and sorted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafkasniff.analysis.columns import (
    column,
)


def test_a_column_by_name() -> None:
    texts = pa.array(["a", None, "a"]).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([texts, pa.array(["x", "y", None], pa.large_string())], names=["one", "two"])
    assert column(batch, "one").equals(pa.array(["a", None, "a"]))
    assert column(batch, "two").type == pa.string()
    with pytest.raises(KeyError, match="three"):
        column(batch, "three")
