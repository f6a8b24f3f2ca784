"""Servers of Anthropic's Messages: Anthropic's own, and the clouds that serve the same messages.

client.py   the adapter: forwards messages, and transcodes chats to messages
hosts.py    what each cloud changes: paths, the version, the betas, a few fields
bedrock.py  what Bedrock changes, and its frames as events
streams.py  a stream of a message, forwarded unchanged or as the chunks of a chat
"""
