"""What tools ask of a broker: its topics, groups, offsets, statistics, clients and settings.

Knows: the tables of the broker, and what RocketMQ's mqadmin and dashboard ask.
Does not know: how messages are sent and pulled.
Others use: `processors` (AdminProcessors), which the controller serves.
"""
