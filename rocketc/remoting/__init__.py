"""RocketMQ's remoting protocol: frames, headers, commands, the table of requests, server and calls.

Knows: how a command is written as bytes, and which fields each request has.
Does not know: stores and topics. Only `connection`, `server` and `channel` know sockets.
Others use: `_frames`, `_headers`, `command` (Command), `codes` (Code), `requests` (REQUESTS), `server` (Server),
`channel` (Channel), `services` (Services), `route_data` (the values of routes),
`allocation` (strategies that divide queues).
"""
