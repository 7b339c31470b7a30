"""Reading a commit log without its store: from bytes to records, messages, columns and Arrow.

Knows: how to walk a log, over damage too, how to select records, how to make messages and columns of them.
Does not know: the store's locks, queues and index. It reads any part of any log, and never writes.
Others use: `scan` (scan(), decode()), `_walk` (Walker), `_reader`, `_filter`, `_message` (Message), `_arrow` (Batch),
`_log_audit`, `_java_walk`, `parallel`, `regex`.
"""
