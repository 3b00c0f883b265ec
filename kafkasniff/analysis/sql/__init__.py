"""Queries in SQL over the tables of exports, run by DuckDB."""
