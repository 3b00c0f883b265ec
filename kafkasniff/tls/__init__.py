"""TLS: decrypts TLS streams with the secrets that an endpoint logged.

    gate.py        whether a connection is TLS, by the first bytes of its streams
    session.py     one TLS connection: items of its streams in, items of its clear streams out
    negotiation.py the result of its handshake
    half.py        one stream of it: its keys, and the search for records after a loss
    clear.py       clear bytes, as runs
    record.py      the record layer: where records begin and end
    handshake.py   contents of hellos and certificates
    ciphers.py     the cipher suites        decrypt12.py, decrypt13.py   records to clear bytes
    protection.py  chooses between these, and the secret
    keylog.py      key logs: secrets by client random
    descriptions.py  descriptions of TLS connections

Sources: RFC 5246 (TLS 1.2), RFC 8446 (TLS 1.3), RFC 9850 (key logs). Nothing here does I/O.
"""
