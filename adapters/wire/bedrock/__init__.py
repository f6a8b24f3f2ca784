"""Amazon Bedrock's runtime. Converse is a close relative of Messages, so a message is the form between it and a chat.

models.py               names of models: their families, and the paths of their operations
message_to_converse.py  a message as a request for Converse
plain_chats.py          plain chats as requests for Converse, in one step
content.py              the blocks of a message as blocks of Converse
converse_to_message.py  an answer of Converse as a message
converse_events.py      a stream of Converse as the events of a message
embeddings.py           embeddings of Titan and Cohere
event_stream.py         AWS's event stream: frames with two checksums, both ways
errors.py               exceptions, in a header or in a frame
invoked.py              Anthropic's events as frames
converse_requests.py    requests of Converse's clients as messages
converse_answers.py     messages as answers of Converse
"""
