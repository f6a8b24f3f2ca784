"""MQTT 5, by paho-mqtt.

client.py      the client of a broker: publishes, joins shared subscriptions, reads topics
connection.py  one network connection on the event loop
session.py     one session of a shared subscription: messages are acknowledged in their order
member.py      one member of a group: its own session, and the sessions of members that are gone
"""
