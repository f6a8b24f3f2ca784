"""Amazon SQS, by aiobotocore.

connection.py    calls of an endpoint, and the URLs of its queues
client.py        publishes messages, and subscribes to queues
entries.py       messages as entries of batches
subscription.py  one reader of a queue
envelope.py      headers and bodies ↔ attributes and texts of messages
"""
