"""Taps: bytes first, decoding later.

A relay (`relay.py`) or a sniffer (`sniffer.py`) only writes down what passes, in files that a kill at any moment leaves
readable. Afterwards `captures.py` turns files into conversations, `http2.py` those into gRPC messages, and `decode.py`
these into an observation; what was not overheard is said to be missing, never filled in.
"""
