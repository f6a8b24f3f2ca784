"""Our gRPC over HTTP/2 (RFC 9113), both sides, as `adapters.http1` is for HTTP/1.1. Bytes in, bytes out.

frames.py      the frames' names and shapes; fields.py: header blocks (HPACK, RFC 7541)
framing.py     bytes cut into frames, so many in each turn of the loop
sending.py     frames out, within the peer's windows
control.py     settings, pings, windows, resets; connection.py: header blocks, deadlines, ends
stream.py      one stream, its sending half; receiving.py: the other; inbox.py: messages put together, inflated
status.py      gRPC's messages, timeouts and metadata; codes.py: its status codes
head.py        what the head of a call must be; answer.py: and that of an answer
call.py        one call as a handler sees it; accepted.py: the server's connection; server.py: listeners, limits, drain
exchange.py    one call of the client; dialled.py: its connection; channel.py: pooled connections to one endpoint

Nothing above this package sees a frame, and nothing in it a protobuf. What gRPC does not use is not
spoken: no push, no priorities.
"""
