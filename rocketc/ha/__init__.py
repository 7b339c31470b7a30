"""RocketMQ's HA protocol: a master sends the bytes of its log, a slave reports how far it has them.

Knows: frames of both directions, the states of a connection, which offsets are acknowledged.
Does not know: topics, records, requests of the remoting protocol. The log is bytes between two physical offsets.
Others use: `protocol` (frames), `Master` (an embedded master), `master` and `slave` (a master and a slave as services
of a loop).
"""

from rocketc.ha.embedded import Master
from rocketc.ha.master import MasterSettings, SlaveState

__all__ = ["Master", "MasterSettings", "SlaveState"]
