"""Long runs that look for wrong responses and leaks.

``tensor``  the tensor runtime and a gateway before it
``llm``     the LLM engine
``fleet``   a gateway before every kind of server, killed at random
"""
