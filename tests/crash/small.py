"""Settings of the stores of crash tests: small, because the files are copied many times, and are large by default."""

SMALL = {"mapped_file_size_consume_queue": 2000, "max_hash_slot_num": 50, "max_index_num": 200}
