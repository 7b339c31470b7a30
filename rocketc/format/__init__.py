"""The format of stored bytes: records of the commit log, units of consume queues, message ids.

Knows: the layout of a record and of a unit, how to check, encode and decode them, compression of bodies.
Does not know: files, stores, the origin of the bytes. Its functions get pointers or buffers, each with a length.
Others use: `_record` (sizes, parsing, checks, encoding, without the GIL), `_encoding` (the same for Python),
`_queue_units`, `_text_table`, `ids`, `compression`.
"""
