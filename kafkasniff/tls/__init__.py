"""TLS: decrypts TLS streams with the secrets that an endpoint logged.

    gate.py        whether a connection is TLS, by the first bytes of its streams
    session.py     one TLS connection: items of its streams in, items of its clear streams out
    negotiation.py its handshake: the keys that result, why it failed, and what to do about that
    half.py        one stream of it: its keys, clear bytes, and the search for records after a loss
    record.py      records, hellos and certificates
    keylog.py      key logs: secrets by client random
    descriptions.py  what reports say of TLS connections

Sources: RFC 5246 (TLS 1.2), RFC 8446 (TLS 1.3), RFC 9850 (key logs). Nothing here does I/O.
"""
