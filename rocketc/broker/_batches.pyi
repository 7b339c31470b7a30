"""The body of a batch, and the records of its messages."""
