"""A client of RocketMQ's clusters: where the queues of a topic are, and what an operator asks and changes.

Knows: the bodies of name servers and brokers, routes, and which server to ask.
Does not know: stores and their files. It speaks to RocketMQ's brokers and to this project's alike.
Others use: `admin` (Admin), `routes`.
"""
