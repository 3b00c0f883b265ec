"""Names for numbers: topics behind ids, brokers behind addresses, client software behind connections, fetch sessions.

Protocol versions since KIP-516 name topics by id; the name was told somewhere else, perhaps to another client. So what
the traffic tells is collected in a `Catalog`, and an `Enricher` adds to later messages what is known by then. Both see
messages after the merge of all connections, in capture order: what they add does not depend on how packets came in.

    plan.py       which fields of which messages name topics and brokers, from the definitions
    catalog.py    what is known so far
    sessions.py   the partitions that incremental fetch requests (KIP-227) leave unsaid
    enricher.py   messages in, messages with `_topic_name`, `_session` … out
    topic_ids.py  names from a file
"""

from kafkasniff.enrich.catalog import Broker, Catalog
from kafkasniff.enrich.enricher import Enricher
from kafkasniff.enrich.plan import leaves_alone

__all__ = ["Broker", "Catalog", "Enricher", "leaves_alone"]
