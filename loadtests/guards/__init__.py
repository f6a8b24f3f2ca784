"""Forbidden spans in streams, through the guards of several gateways: `python -m loadtests.guards --help`.

corpus.py    the streams: a span cut at every place, in each part of an answer
stub.py      the server of models that answers with these streams
products.py  the gateways and their own filters, as their documentation configures them for streams
reading.py   what a client has received of a stream
"""
