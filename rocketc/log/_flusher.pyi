"""Making the log durable: group commit, background flush, and callers that wait for a flush."""
