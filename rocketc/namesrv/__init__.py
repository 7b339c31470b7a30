"""The name server: which broker has which topic. Brokers register with it, clients ask it for routes.

Knows: routes, the life of brokers, key-value settings, and the requests about them.
Does not know: how frames are cut and written (remoting), messages and stores.
Others use: `name_server` (NameServer), `config` (NamesrvConfig).
"""
