"""What a prepared record must be before the log takes it: its topic, and what its properties ask for."""
