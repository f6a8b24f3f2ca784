"""gRPC over HTTP/2 (RFC 9113), server and client: the counterpart of `adapters.http1`. Messages are plain bytes.

frames.py      names, shapes and bounds of frames; splits received bytes into frames
fields.py      header blocks (HPACK, RFC 7541)
status.py      gRPC's status: codes, messages, metadata
sending.py     sends frames within the windows of the peer
inbox.py       assembles messages from DATA frames and inflates them
stream.py      both halves of a stream
control.py     settings, pings, windows and resets
connection.py  header blocks, deadlines and ends, for both sides
head.py        decodes and checks the head of a call
call.py        one call, as a handler of the server uses it
accepted.py    the server, and each connection that it accepts
exchange.py    one call of the client, and the head and trailers of its response
dialled.py     one connection of the client
channel.py     pooled connections of the client to one endpoint

Each file imports only files above it. No code outside this package handles frames, and this package decodes no
protobuf. Push and priorities, which gRPC does not use, are not supported.
"""
