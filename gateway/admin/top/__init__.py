"""`headrace top`: a running gateway in a terminal, from its admin listener.

source.py   samples of the state and the metrics
rates.py    differences between two samples
screen.py   a frame of the screen
cli.py      the command
"""
