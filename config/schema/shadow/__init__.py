"""Shadow traffic: copies of requests to another target, and the comparison of both answers.

shadow.py    `shadow` of a route
copies.py    share, noise, bounds and verdict of copies
compare.py   `compare`: when two answers agree
"""
