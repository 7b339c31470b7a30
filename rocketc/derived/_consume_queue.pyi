"""Writing one consume queue: which records a topic and queue id has, in the order of their queue offsets."""
