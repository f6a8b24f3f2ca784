"""A server that finds names and places in texts, over the HTTP API of Presidio's analyzer.

Guards of personal data ask it. Presidio computes, with a pipeline of spaCy for each language.

__main__.py  the command line
server.py    the paths, and the life of the process
analyzers.py Presidio's engine
"""
