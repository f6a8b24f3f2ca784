"""Messages of brokers as requests.

room.py     how many more messages may be received
order.py    messages of one key, one after another
replies.py  the topic of an answer
"""
