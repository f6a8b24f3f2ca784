"""Adapter of servers of Anthropic's Messages.

client.py    the adapter: forwards messages, converts chats
streams.py   a message's stream, forwarded unchanged or transcoded to a chat's
"""
