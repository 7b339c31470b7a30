"""Units of one consume queue as they are written, at their numbers."""
