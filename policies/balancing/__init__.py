"""The endpoint of a request within a pool.

balance.py     the interface of pickers; pickers by endpoint only: round robin, random, least request
signals.py     the load that a server reports, and the measured time to the first chunk
stickiness.py  consistent hashing with bounded loads
affinity.py    prefix affinity: the endpoint that has computed the beginning of the prompt
zones.py       endpoints of the gateway's own zone first, then those of its region
pickers.py     the picker of a pool's ``balance``, and the one by server-reported load
"""
