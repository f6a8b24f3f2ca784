"""RabbitMQ, by aiormq: quorum queues, acknowledgements by hand, and confirmed publications.

client.py        the client: publishes, and opens subscriptions and inboxes
connection.py    a connection that is opened again after its loss, and its errors
messages.py      messages and their properties and headers
subscription.py  a member of a group
"""
