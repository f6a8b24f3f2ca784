"""Our HTTP/1.1, both sides, over uvloop and httptools (llhttp, strict).

server.py      limits, draining; listeners.py: sockets, of any server
connection.py  one accepted connection: parse, queue, answer, time out
feeding.py     bytes to the parser, so many in each turn of the loop
budget.py      bytes that requests may hold; heap.py: memory given back
head.py        what a request's head must be, beyond what llhttp checks; incoming.py: a request on its way in
message.py     Request, Response, Headers: all that a handler sees
client.py      pooled connections to one endpoint, and the deadline of each wait
exchange.py    one connection of the client: a request written, its answer read
sweeper.py     one timer for all deadlines
greeting.py    the first bytes, which decide between HTTP/1.1 and HTTP/2
multiplexed.py HTTP/2 with the package `h2`; stream_transport.py: each stream served as a connection of HTTP/1.1

Nothing above this package sees a socket, or which version of HTTP a client speaks; what llhttp lets through and the
standard does not (RFC 9112) is refused in `head.py`.
"""
