"""The tables: their schemas, and the builders that make their rows from what an inspector yields.

    schemas.py      the columns, as a reader sees them
    staged.py       the columns that rows have besides until a run is over: what has to wait for names told later
    exchanges.py    `exchanges`: one row per request and its response
    records.py      `records`: columns from the batches' bytes, no Python object for a record; record_arrays.py
    connections.py  `connections`
    problems.py     `problems`
    resolve.py      staged rows to final ones: names of topics and brokers, fetch sessions

A leaf: Parquet, Spark and the analyses use it, text and JSON do not. Rows depend on their own connection's packets and
on what was told (`enrich.tellings`), and never hold a number that counts over a run. What an exchange does not tell is
null.
"""

from kafkasniff.rows.exchanges import ExchangeRows, exchange_row
from kafkasniff.rows.schemas import (
    CONNECTIONS,
    EXCHANGES,
    PARTITION,
    PROBLEMS,
    RECORDS,
    SCHEMA_VERSION,
    TABLE_NAMES,
    TABLES,
)

__all__ = [
    "CONNECTIONS",
    "EXCHANGES",
    "PARTITION",
    "PROBLEMS",
    "RECORDS",
    "SCHEMA_VERSION",
    "TABLES",
    "TABLE_NAMES",
    "ExchangeRows",
    "exchange_row",
]
