"""The commit log as it is written: arguments, the put lock, append, flush, recovery, truncation.

Knows: where a record goes and when it is durable, what a put returns, where the log ends after a crash.
Does not know: consume queues, index, or readers. Recovery asks the queues one question, through a protocol (QueueEnds).
Others use: `_commit_log` (CommitLog), `_raw_log`, `_message_args`, `_put_result`, `_queue_offsets`, `_flusher`,
`_positions`, `_put_locks`, `recovery`, `truncation`, `message_copy`.
"""
