"""Making the log durable: group commit, flush in the background, and who waits for it."""
