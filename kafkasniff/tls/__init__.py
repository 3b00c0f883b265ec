"""TLS: streams that are TLS, decrypted with the secrets that an endpoint logged.

    gate.py        whether a connection is TLS, by the first bytes of its streams
    session.py     one TLS connection: items of its streams in, items of its clear streams out
    negotiation.py what its handshake comes to
    half.py        one stream of it: its keys, and the search for records behind a loss
    clear.py       clear bytes, as runs
    record.py      the record layer: where records begin and end
    handshake.py   what hellos and certificates say
    ciphers.py     the cipher suites        decrypt12.py, decrypt13.py   records to clear bytes
    protection.py  which of them, with which secret
    keylog.py      key logs: secrets by client random
    telling.py     a TLS connection in words

Sources: RFC 5246 (TLS 1.2), RFC 8446 (TLS 1.3), RFC 9850 (key logs). Nothing here does I/O.
"""
