"""Clients of message brokers behind one interface. A broker's library is imported when a configuration names it.

base.py      the interface: `BrokerClient`, `BrokerSubscription`, and the messages
ends.py      the end of each published message: stored, rejected, or the broker is away
registry.py  the module of each broker
settings.py  credentials and TLS of a broker
kafka.py     Kafka; offsets.py: the offset up to which a partition is done
mqtt/        MQTT 5
nats.py      NATS JetStream
rabbitmq/    RabbitMQ
redis.py     Redis Streams
sqs/         Amazon SQS
"""
