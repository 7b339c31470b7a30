"""The list of files of one queue, shared by the threads of a store."""
