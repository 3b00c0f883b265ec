"""Names for numbers: topics for ids, brokers for addresses, client software and fetch sessions for connections.

Protocol versions since KIP-516 name topics by id; the name appears in other messages, perhaps of another client. So a
`Catalog` collects the names that the traffic reports, and an `Enricher` adds to later messages what is known by then.
Both see messages after the merge of all connections, in capture order, so batch boundaries do not change the result.

    plan.py       which fields of which messages name topics and brokers, from the definitions
    catalog.py    what is known so far, or from a file
    sessions.py   the partitions that incremental fetch requests (KIP-227) do not name
    enricher.py   messages in, messages with `_topic_name`, `_session` … out
"""

from kafkasniff.enrich.catalog import Broker, Catalog
from kafkasniff.enrich.enricher import Enricher
from kafkasniff.enrich.plan import leaves_alone

__all__ = ["Broker", "Catalog", "Enricher", "leaves_alone"]
