"""Workers behind a message broker: a request is published, and its answer is a message.

adapter.py   the adapter of one broker
client.py    publishes requests, and assigns the messages of the reply topic to them
"""
