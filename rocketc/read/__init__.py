"""Reading a commit log without its store: from bytes to records, messages, columns and Arrow.

Knows: how to iterate over a log and skip damage, how to select records, how to decode them to messages and columns.
Does not know: the store's locks, queues and index. It reads any part of any log, and never writes.
Others use: `scan` (scan(), decode()), `_walk` (Walker), `_reader`, `_filter`, `sql` (compile_sql()),
`_message` (Message), `_arrow` (Batch), `_log_audit`, `_java_walk`, `parallel`, `regex`,
`schemes` (register(): what URLs scan() gives to a higher package), `record_stream`, `record_block`.
"""
