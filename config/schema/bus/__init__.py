"""Sections of message brokers.

broker.py   one broker: its URL, credentials and TLS
urls.py     URLs of brokers, and of endpoints
topic.py    names of topics
tls.py      TLS to brokers, and to endpoints
binding.py  an entry of `listen.bus`: a topic bound to a model and a tenant
"""
