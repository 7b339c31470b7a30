"""The row of files of one queue, as the threads of a store share it."""
