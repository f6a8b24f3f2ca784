"""Why a request goes where it goes, asked for from outside: the command line, the admin listener, a response header.

asked.py gives a written request the form that a real one has, why.py looks at it as the core does, text.py tells
people, cases.py compares with what a test expects, cli.py has the commands.
"""
