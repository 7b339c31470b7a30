"""RocketMQ's remoting protocol: frames, headers, commands, the table of requests, and a server.

Knows: how a command is written as bytes, and which fields each request has.
Does not know: stores and topics. Only `connection` and `server` know sockets.
Others use: `_frames`, `_headers`, `command` (Command), `requests` (REQUESTS), `server` (Server).
"""
