"""Servers that speak Anthropic's Messages.

client.py    the adapter: forwards messages, converts chats
requests.py  the requests of Anthropic's door
streams.py   a message's stream, unchanged or as a chat's
"""
