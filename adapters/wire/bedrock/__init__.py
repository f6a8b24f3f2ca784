"""Amazon Bedrock's runtime.

event_stream.py   AWS's event stream: frames with two checksums, both ways
errors.py         exceptions, in a header or in a frame
invoked.py        Anthropic's events as frames
"""
