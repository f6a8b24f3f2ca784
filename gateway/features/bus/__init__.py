"""Messages of brokers as requests: `listen.bus`.

plane.py        all bindings of one process
consumer.py     one binding: receives messages, no more than there are free places, and runs them
opening.py      a delivery → a message in work, or the reason why it cannot be answered
work.py         one message in work, and its end
running.py      the attempts of a message, and its stream
requests.py     one message as an ordinary request
answers.py      answers, pieces of streams and dead letters as messages
ending.py       ends messages in order: answer, table of ids, settlement
replacing.py    what the broker receives in the place of a message that it rejects
counts.py       the counts of a binding
cancels.py      cancels messages in work
claims.py       claims of ids, and their renewal
free_places.py  the free places of a binding's pools
done/           the ids of messages in work and answered
metrics.py      metrics of bindings
"""
