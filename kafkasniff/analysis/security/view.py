"""The security view of captures, from an inspector's events."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Finding
from kafkasniff.analysis.security.denials import Denials
from kafkasniff.analysis.security.identities import ClientIdentity, Identities
from kafkasniff.analysis.security.judging import findings
from kafkasniff.analysis.security.logins import Login
from kafkasniff.model import Connection, Exchange, SaslToken

if TYPE_CHECKING:
    from kafkasniff.filters import Selector

__all__ = ["MAX_OPEN", "SecurityView"]

MAX_OPEN: Final = 1 << 18
"""Maximum number of open connections whose authentication is kept; the oldest is forgotten first."""


class SecurityView:
    """Feed it exchanges, SASL tokens and connections, in their order.

    `selector`: shows only connections with selected exchanges, and only denials of these exchanges.
    """

    def __init__(self, selector: Selector | None = None) -> None:
        self._selector = selector
        self._logins: OrderedDict[int, Login] = OrderedDict()
        self._identities = Identities(MAX_EVIDENCE)
        self._denials = Denials(MAX_EVIDENCE)
        self._forgotten = 0
        self.connections = 0
        """Connections that were seen, whatever they carry; with a selector only those with selected exchanges."""

    def feed(self, events: Sequence[Any], start_ns: int | None = None) -> None:
        """Take events of an inspector. `start_ns`: time of the first packet, which relative filters count from."""
        chosen = None
        if self._selector is not None:
            self._selector.start_ns = start_ns
            chosen = {one.exchange for one in self._selector.feed(events) if isinstance(one, Exchange)}
        for event in events:
            if type(event) is Exchange:
                login = self._login(event.connection)
                login.feed(event)
                if chosen is None or event.exchange in chosen:
                    login.selected = True
                    self._denials.feed(event, login.principal)
            elif type(event) is SaslToken and event.connection is not None:
                self._login(event.connection).feed_token(event)
            elif type(event) is Connection:
                login = self._logins.pop(event.connection, Login())
                if chosen is None or login.selected:
                    self.connections += 1
                    self._identities.feed(event, login)

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
