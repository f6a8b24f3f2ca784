"""HTTP/1.1, server and client, over uvloop and httptools (llhttp, strict).

server.py            serves one handler: bounds, draining
accepting.py         the accepted connections of a server: their limit and their drain
listeners.py         listening sockets: TCP, TLS, Unix, or inherited
shared_socket.py     a listening socket of several processes
connection.py        the responding half of an accepted connection: respond, time out, close
receiving.py         its receiving half: parse requests, queue them
host.py              the interface between a server and its connections
limits.py            bounds on each accepted connection
feeding.py           passes received bytes to the parser, a bounded number in each turn of the loop
head.py              checks of a request's head that llhttp omits (RFC 9110, 9112)
incoming.py          a request whose body is being received
message.py           `Request`, `Response`, `Headers`: the types that a handler uses
room.py              slots for connections; idle connections yield theirs to new ones
budget.py            limits on the bytes that requests hold at once
heap.py              collections of garbage, and freed memory
client.py            pooled connections to one endpoint
exchange.py          one connection of the client: request and response
body_decoder.py      decompresses responses that the client did not ask to be compressed
proxy.py             a proxy between the client and the upstream
relay.py             an exchange of the client that a proxy carries
sweeper.py           one timer for all deadlines of a loop
greeting.py          selects HTTP/1.1 or HTTP/2 by the first bytes
multiplexed.py       HTTP/2 with the package `h2`
frame_receiver.py    the receiving half of an HTTP/2 connection: bounded frames
stream_transport.py  one HTTP/2 stream as the transport of a connection of HTTP/1.1

No module outside this package handles a socket or depends on the version of HTTP that a client uses.
"""
