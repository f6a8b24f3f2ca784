"""The processes that compute a model together, each with a part of it.

process.py  one of them, but for the first; it is a program
others.py   all of them, as the first has them: their start, the plans of steps, and their end
group.py    sums of parts
channel.py  the messages between the first and another one
"""
