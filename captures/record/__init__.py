"""Recorder of the captures: real brokers, real clients, tcpdump between them.

Run from the checkout's root as ``python -m captures.record``; see ``captures/README.md``. ``RealBroker`` is also what
integration tests start a broker with: ``from captures.record.broker import RealBroker``.
"""
