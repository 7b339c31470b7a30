"""rocketc.Queue: a work queue on a store of its own, for one process, with acknowledgement and redelivery.

Knows: which messages a group has taken, acknowledged or given back, and where each group is.
Does not know: how messages are stored. It uses the public MessageStore.
Others use: `queue` (Queue), `consumer` (Consumer), `_in_flight` (Item), all of which `import rocketc` gives.
"""
