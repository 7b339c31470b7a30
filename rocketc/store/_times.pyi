"""Queue offsets by time: which message of a queue was stored when."""
