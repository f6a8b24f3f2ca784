"""Clients of message brokers behind one interface. A broker's library is imported when a configuration names it.

base.py      the interface of a broker, its ends, credentials and TLS, and the module of each broker
kafka.py     Kafka
mqtt/        MQTT 5
nats.py      NATS JetStream
rabbitmq/    RabbitMQ
redis.py     Redis Streams
sqs/         Amazon SQS
"""
