"""The tables: their schemas, and the builders that make their rows from the output of an inspector.

    schemas.py      the columns, as a reader sees them
    staged.py       extra columns that rows have until a run is over, for names that are learnt later
    exchanges.py    `exchanges`: one row per request and its response
    records.py      `records`: columns from the batches' bytes, no Python object for a record; record_arrays.py
    connections.py  `connections`
    transport.py    `transport`
    problems.py     `problems`
    resolve.py      staged rows to final ones: names of topics and brokers, fetch sessions

Used by Parquet, Spark and the analyses, not by text and JSON. Rows depend on their own connection's packets and
on learned names (`enrich.learned_facts`), and never hold a number that counts over a run. Facts missing in an exchange
are null.
"""

from kafkasniff.tables.rows.exchanges import ExchangeRows, exchange_row
from kafkasniff.tables.rows.schemas import (
    CONNECTIONS,
    EXCHANGES,
    PARTITION,
    PROBLEMS,
    RECORDS,
    SCHEMA_VERSION,
    TABLE_NAMES,
    TABLES,
    TRANSPORT,
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
    "TRANSPORT",
    "ExchangeRows",
    "exchange_row",
]
