"""Streams behind guards: text leaves when what examines it lets it pass.

guard.py     what examines the texts of a stream, and the stream of what may leave
chats.py     streams of chats and completions
tensors.py   streams of tensors
"""
