"""The broker: a store, the name servers that know it, and the clients that send to it and consume from it.

Knows: RocketMQ's rules for sending, pulling, offsets, consumers, retries, delays and topics.
Does not know: how frames are cut and written (remoting), how records are stored (store).
Others use: `running` (running_broker), `config` (BrokerConfig).
"""
