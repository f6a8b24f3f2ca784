"""Coding agents and client libraries of others, run as their users run them.

versions.py   the packages that are installed, with their versions
installed.py  installs them
agents.py     how each one is started: its variables, its files, its command
sessions.py   a folder of work, a task, and the run of an agent on it
model.py      the model's server behind the gateway: it plays the model of a session with tools
matrix.py     which agents play a session over which provider, and the page that shows it
offered.py    chooses among the tools that an agent offers
captured.py   writes the requests of each agent to a file: the command that adds a new release
sent.py       a captured request as a test sends it again, at each door
aisdk.mjs     a tool loop of the AI SDK with each of its providers; langchain_loop.py: of LangChain
wires.py      a server of all three wires with a fixed answer, for the captured requests
engine_model.py  a model for the bundled engine that answers every prompt with one word
"""
