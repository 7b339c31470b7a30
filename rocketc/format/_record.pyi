"""Message records of the commit log: sizes, parsing, checks, encoding; nothing of it is for Python."""
