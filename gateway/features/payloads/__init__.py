"""Payload events: requests and answers of a model as CloudEvents, in the format of KServe's inference logger.

drafts.py   a sampled request while it runs
events.py   its two events
sinks.py    a receiver over HTTP, and a topic of a broker
sender.py   the queue of one model behind its requests, and the task that redacts and sends
plane.py    the senders of a configuration
metrics.py  counts of events, sent and lost
"""
