"""One consume queue in memory, and how it is read, from any thread."""
