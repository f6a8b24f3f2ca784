"""HTTP/1.1, server and client, over uvloop and httptools (llhttp, strict).

server.py            serves one handler: bounds, draining
listeners.py         listening sockets (TCP, TLS, Unix, inherited) and the connections from them: limit and drain
connection.py        the responding half of an accepted connection: respond, time out, close
receiving.py         its receiving half: parse requests, queue them
host.py              the interface between a server and its connections, and the bounds on each
feeding.py           passes received bytes to the parser, a bounded number in each turn of the loop
incoming.py          a request whose body is being received, and the checks of its head that llhttp omits
message.py           `Request`, `Response`, `Headers`: the types that a handler uses
budget.py            limits on the bytes that requests hold at once
client.py            pooled connections to one endpoint
exchange.py          one connection of the client: request and response
proxy.py             a proxy between the client and the upstream
signing.py           the interface of credentials that depend on the request
relay.py             an exchange of the client that a proxy carries
sweeper.py           one timer for all deadlines of a loop
greeting.py          selects HTTP/1.1 or HTTP/2 by the first bytes of a connection
multiplexed.py       HTTP/2 with the package `h2`, for clients that begin with its first bytes
stream_transport.py  one HTTP/2 stream as the transport of a connection of HTTP/1.1

No module outside this package handles a socket or depends on the version of HTTP that a client uses.
"""
