"""RocketMQ's remoting protocol: frames, headers, commands, and the table of requests.

Knows: how a command is written as bytes, and which fields each request has.
Does not know: stores, topics, sockets.
Others use: `_frames`, `_headers`, `command` (Command), `requests` (REQUESTS).
"""
