"""Amazon Bedrock's runtime.

event_stream.py   AWS's event stream: frames with two checksums, both ways
"""
