"""`headrace replay --against`: recorded or traced requests, sent to a gateway at their times.

planned.py      a request to send, and the recorded result
recorded.py     the requests of a folder in the order of their arrivals
unsent.py       recorded requests that are never sent
traces.py       public traces as arrivals and lengths: Mooncake, BurstGPT, Azure
sending.py      the open loop: each request at its time, within a bound
exchanging.py   sends one request and reads its answer
judging.py      compares an answer with the recorded one
sent_report.py  counts, differences and quantiles, as a table and as JSON
command.py      runs a replay until its end or a signal
"""
