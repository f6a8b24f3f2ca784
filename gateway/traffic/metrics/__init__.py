"""Metrics of traffic, read at each scrape.

gauges.py     gauges of endpoints, tenants, identity and workers
queues.py     queues
caches.py     response caches
discovery.py  discovered endpoints and reported load
"""
