"""Messages of brokers as requests: `listen.bus`.

plane.py        all bindings of one process
consumer.py     one binding: receives messages, no more than there are free places, runs and cancels them
opening.py      a delivery → a message in work, or the reason why it cannot be answered
work.py         one message in work, its end, and the counts of ends
running.py      the attempts of a message as ordinary requests, and its stream
answers.py      answers, pieces of streams and dead letters as messages
ending.py       ends messages in order: answer or its replacement, table of ids, settlement
claims.py       claims of ids, and their renewal
done/           the ids of messages in work and answered
metrics.py      metrics of bindings
"""
