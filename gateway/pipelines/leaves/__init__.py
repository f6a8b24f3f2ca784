"""The kinds of nodes that contain no other nodes and call models only as a part of their work.

build.py     compiles the nodes
template.py  a text, or the messages of a chat, from values
resources.py prepares what the nodes of a configuration need, before it is in force
"""
