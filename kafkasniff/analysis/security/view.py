"""The security view of captures, from an inspector's events."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Finding
from kafkasniff.analysis.security.denials import Denials
from kafkasniff.analysis.security.identities import ClientIdentity, Identities
from kafkasniff.analysis.security.judging import findings
from kafkasniff.analysis.security.logins import Login
from kafkasniff.model import Connection, Exchange, SaslToken

__all__ = ["MAX_OPEN", "SecurityView"]

MAX_OPEN: Final = 1 << 18
"""Open connections whose authentication is kept; beyond that, that of the oldest is forgotten."""


class SecurityView:
    """Feed it exchanges, SASL tokens and connections, in their order."""

    def __init__(self) -> None:
        self._logins: OrderedDict[int, Login] = OrderedDict()
        self._identities = Identities(MAX_EVIDENCE)
        self._denials = Denials(MAX_EVIDENCE)
        self._forgotten = 0
        self.connections = 0
        """Connections that were seen, whatever they carry."""

    def feed(self, events: Iterable[Any]) -> None:
        """Take events of an inspector."""
        for event in events:
            if type(event) is Exchange:
                login = self._login(event.connection)
                login.feed(event)
                self._denials.feed(event, login.principal)
            elif type(event) is SaslToken and event.connection is not None:
                self._login(event.connection).feed_token(event)
            elif type(event) is Connection:
                self.connections += 1
                login = self._logins.get(event.connection) or Login()
                self._identities.feed(event, login)
                self._logins.pop(event.connection, login)

    def _login(self, connection: int) -> Login:
        found = self._logins.get(connection)
        if found is None:
            if len(self._logins) >= MAX_OPEN:
                self._logins.popitem(last=False)
                self._forgotten += 1
            found = self._logins[connection] = Login()
        return found

    def identities(self) -> list[ClientIdentity]:
        """Who connected, by listener, client and principal."""
        return sorted(
            self._identities.found.values(),
            key=lambda one: (one.broker, one.client_ip, one.client_ids, one.principal or "", one.first or 0),
        )

    def findings(self) -> list[Finding]:
        """What is insecure or refused, worst first."""
        return findings(self._identities.found.values(), self._denials.found.values())

    def notes(self) -> list[str]:
        """What the answer lacks."""
        notes = []
        if self._identities.beyond:
            notes.append(
                f"{self._identities.beyond:,} connections are not listed: there are too many different clients"
            )
        if self._denials.beyond:
            notes.append(f"{self._denials.beyond:,} denials are not listed: there are too many different ones")
        if self._forgotten:
            notes.append(f"the authentication of {self._forgotten:,} connections was forgotten: too many were open")
        if self._identities.unread:
            notes.append("certificates were not read: pip install 'kafkasniff[tls]'")
        return notes
