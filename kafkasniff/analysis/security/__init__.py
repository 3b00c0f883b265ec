"""Who connects as whom: transport, authentication and authorization. Detectors find the weaknesses."""

from kafkasniff.analysis.detectors.identities import ClientIdentity
from kafkasniff.analysis.security.view import SecurityView, security_findings

__all__ = ["ClientIdentity", "SecurityView", "security_findings"]
