"""The name server: which brokers exist, and on which of them each topic is.

Knows: the tables of routes and settings, and the requests that read and change them.
Does not know: stores.
"""
