"""Real brokers of the tests' own, and producers and consumers that share no code with the gateway.

broker.py  the interface; processes on free ports
fast_sqs.py  fauxqs, for many messages
kafka.py   tansu
mqtt.py    mosquitto
nats.py    nats-server with JetStream
rabbitmq.py  RabbitMQ
redis.py   redis-server
sqs.py     moto
"""
