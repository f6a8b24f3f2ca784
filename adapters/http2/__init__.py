"""gRPC over HTTP/2 (RFC 9113), server and client: the counterpart of `adapters.http1`. Messages are plain bytes.

frames.py      names and shapes of frames; fields.py: header blocks (HPACK, RFC 7541)
codes.py       gRPC's status codes; status.py: its messages, timeouts and metadata
framing.py     splits received bytes into frames, a bounded number in each turn of the loop
sending.py     sends frames within the windows of the peer
inbox.py       assembles messages from DATA frames and inflates them
carrier.py     the interface of a connection to its streams; calm.py: the allowance of frames without a call
receiving.py   the receiving half of a stream; stream.py: the sending half
control.py     settings, pings, windows and resets; connection.py: header blocks, deadlines and ends, for both sides
head.py        decodes and checks the head of a call; answer.py: the head and trailers of a response
limits.py      bounds on each accepted connection
call.py        one call, as a handler uses it; accepted.py: the server's connection; server.py: listeners and drain
exchange.py    one call of the client; dialled.py: its connection; channel.py: pooled connections to one endpoint

Each file imports only files above it. No code outside this package handles frames, and this package decodes no
protobuf. Push and priorities, which gRPC does not use, are not supported.
"""
