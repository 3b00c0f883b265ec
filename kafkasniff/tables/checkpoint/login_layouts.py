"""Layouts of the logins of connections, for the table `connections`."""

from __future__ import annotations

from typing import Final

from kafkasniff.tables.checkpoint.graph import Layout
from kafkasniff.tables.checkpoint.layout_types import most
from kafkasniff.tables.rows.logins import MAX_OPEN, Login, Logins, Outcome

__all__ = ["LOGINS"]

LOGINS: Final = (
    Layout(Logins, {"_found": most(dict[int, Login], MAX_OPEN)}, new=Logins),
    Layout(
        Login,
        {
            "credentials": bool,
            "exchange": int | None,
            "mechanism": str | None,
            "outcome": Outcome,
            "principal": str | None,
            "reason": str | None,
            "served": bool,
            "token": bool,
        },
        new=Login,
    ),
)
