"""The broker's JSON tables in a store's folder `config`: topics, consumer groups, offsets, deleted topics.

Knows: what each table holds, the JSON that RocketMQ's fastjson writes, the copy (`.bak`) that replaces a damaged table.
Does not know: the log and the queues, or its callers.
Others use: the names below; inside rocketc also `config_manager` (a table kept in memory) and `_deleted_topics`.
"""

from rocketc.tables.deleted_topics import DeletedTopics
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.table_file import read_table, write_table
from rocketc.tables.topics import TopicConfig, Topics

__all__ = [
    "ConsumerOffsets",
    "DelayOffsets",
    "DeletedTopics",
    "SubscriptionGroupConfig",
    "SubscriptionGroups",
    "TopicConfig",
    "Topics",
    "read_table",
    "write_table",
]
