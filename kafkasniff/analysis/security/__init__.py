"""Who connects as whom: transport, authentication and authorization, as the packets show them.

logins.py       what one connection shows of its authentication
identities.py   connections that look alike, counted together
denials.py      what brokers did not authorize
judging.py      findings
view.py         all of it, from an inspector's events
"""

from kafkasniff.analysis.security.identities import ClientIdentity
from kafkasniff.analysis.security.view import SecurityView

__all__ = ["ClientIdentity", "SecurityView"]
