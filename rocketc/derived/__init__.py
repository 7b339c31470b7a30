"""Everything that can be rebuilt from the log: consume queues, their extension, the key index, and their dispatch.

Knows: the files of queues and index, how records get into them, how both are checked against the log.
Does not know: how a store is opened, or what a caller of put() or get() wants.
Others use: `_consume_queues`, `_key_index`, `_reput` (ReputService), `_change_feed` and `queue_change` (they report new
messages), `_dispatcher`, `_index_reader`, `_derived_audit`, `queue_files` (files of a closed store).
"""
