"""The process: the command line, and what composes a gateway from its parts.

commands.py          the command line
serve.py             runs a gateway until a signal stops it (signals.py: the signals)
app.py               a gateway of one process: data plane, admin listener, reloads
supervisor/          several worker processes as one gateway
data_plane.py        all parts that serve requests, and their reconfiguration
plane_state.py       its state as JSON
features.py          parts that exist only while the file has their section
client_features.py   the features of a process that serves clients (host.py: those of one process of a host)
client_fronts.py     the fronts of clients, with those of the features
client_listeners.py  the HTTP and gRPC servers for clients
admin_backend.py     the operations behind the admin API
own_runtimes.py      the runtimes that a gateway of one process starts
ownership.py         checks at the start that the packages belong to this distribution
extras.py            the optional packages that a configuration needs and that are absent
first_request.py     prints a first request to try
foreign/             two commands that examine a server: probe and conformance
explain_cli.py       `headrace check` and `headrace explain`
migrate_cli.py       `headrace migrate`
errors_cli.py        `headrace errors` (error_codes.py: the table of all codes)
replay_cli.py        `headrace replay` (replay_pool.py: a gateway over one pool, to which it sends)
signals.py           signals that stop or reload the process
"""
