"""The endpoint of a request within a pool.

balance.py     the interface of pickers; pickers by endpoint only: round robin, random, least request
load.py        the picker that uses server-reported load
signal.py      the load that a server reports
latency.py     measured time to the first chunk
stickiness.py  consistent hashing with bounded loads
affinity.py    prefix affinity: the endpoint that has computed the beginning of the prompt
zones.py       endpoints of the gateway's own zone first
localities.py  the own zone, then its region, then the world
pickers.py     the picker of a pool's ``balance``
"""
