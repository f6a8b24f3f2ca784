"""What a server is, by the paths that only its kind has; which models it has, and how it is written in the file.

found.py      what was found, in plain data
look.py       one bounded look at a server
oip.py, text.py, apps.py, tfserving.py, grpc.py   how systems are recognised, a family a file
detect.py     all of them in order
written.py    what was found as a configuration
auto.py       `protocol: auto`: the same at start
"""
