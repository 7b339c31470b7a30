"""One consume queue in memory: its units are read by any thread, and written by the dispatcher alone."""
