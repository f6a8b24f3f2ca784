"""Amazon SQS, by aiobotocore.

connection.py    calls of an endpoint, and the URLs of its queues
client.py        publishes messages, and subscribes to queues
"""
