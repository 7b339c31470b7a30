"""Output for people: reports, tables, charts and messages as text for a terminal, and as HTML for a notebook.

Knows: the form of each report, and how to make any text safe for a terminal.
Does not know: command lines and their options; nothing here writes to a terminal.
Others use: `summaries`, `tables`, `text`, `plots`, `rates`, `messages`, `notebook`.
"""
