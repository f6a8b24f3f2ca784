"""Our gRPC over HTTP/2 (RFC 9113), both sides, as `adapters.http1` is for HTTP/1.1. Bytes in, bytes out.

frames.py      names and shapes of frames; fields.py: header blocks (HPACK, RFC 7541)
codes.py       gRPC's status codes; status.py: its messages, timeouts and metadata
framing.py     bytes cut into frames, a bounded number in each turn of the loop
sending.py     frames out, within the windows of the peer
inbox.py       messages assembled from DATA, and inflated
carrier.py     the connection as its streams see it; calm.py: how many frames without a call a peer may send
receiving.py   the receiving half of a stream; stream.py: the sending half
control.py     settings, pings, windows and resets; connection.py: header blocks, deadlines and ends, for both sides
head.py        rules for the head of a call; answer.py: rules for the head of an answer
limits.py      bounds on each accepted connection
call.py        one call as a handler sees it; accepted.py: the server's connection; server.py: listeners and drain
exchange.py    one call of the client; dialled.py: its connection; channel.py: pooled connections to one endpoint

Each file imports only files above it. No code above this package sees a frame, and this package decodes no protobuf.
Push and priorities, which gRPC does not use, are not supported.
"""
