"""One store in one process: open, put, get, look-ups, subscriptions, cleaning, close.

Knows: log, queues, index and tables of a store, and keeps them consistent. No other package has all of them open.
Does not know: consumer groups, jobs over closed stores, Spark, the command line.
Others use: `opening` (open()), `_store` (MessageStore), `_puts`, `_gets`, `_results`, `_queue_reader`, `_raw_records`,
`_lookups`, `cleaning`, `disk_usage`, `subscription`.
"""
