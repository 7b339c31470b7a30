"""One consume queue in memory. Any thread may read its units; only the dispatcher writes them."""
