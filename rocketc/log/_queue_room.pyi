"""Room for the files of new consume queues, which is checked before the first record of a queue is stored."""
