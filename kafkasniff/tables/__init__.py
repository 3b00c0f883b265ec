"""Decoded traffic as tables: rows, Parquet files, exports and the state that is carried from one to the next."""
