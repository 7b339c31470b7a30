"""Queue offsets by time: find a message of a queue by its store timestamp."""
