"""Write one consume queue: the records of a topic and queue id in the order of their queue offsets."""
