"""The command line: one file per command, wired in main.py."""
