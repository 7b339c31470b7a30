"""rocketc.Queue: a durable work queue for one process, with acknowledgement and redelivery. It has its own store.

Knows: which messages a group has taken, acknowledged or returned, and the position of each group.
Does not know: how messages are stored. It uses the public MessageStore.
Others use: `queue` (Queue), `consumer` (Consumer), `_in_flight` (Item). `import rocketc` exports all three.
"""
