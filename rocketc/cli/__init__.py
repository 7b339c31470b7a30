"""The command line `rocketc`: one module per command, which main.py loads when the command runs.

Knows: options, exit codes, signals, progress on stderr, pipes that close.
Does not know: formats and files. Each command calls one function of the library and prints its report.
Others use: nothing; the console script is `main`.
"""
