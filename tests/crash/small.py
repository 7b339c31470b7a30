"""Settings of the stores of crash tests: their files are copied many times, and those of queues and index are large."""

SMALL = {"mapped_file_size_consume_queue": 2000, "max_hash_slot_num": 50, "max_index_num": 200}
