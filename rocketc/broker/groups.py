"""The settings of consumer groups, with a broker's rules for unknown groups.

Source: RocketMQ SubscriptionGroupManager, MixAll.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups, group_name_error

SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)  # every broker has them from the start
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"


def is_group_name(name: str) -> bool:
    """Whether a group of this name may be created.

    >>> is_group_name("audit"), is_group_name("my audit"), is_group_name("")
    (True, False, False)
    """
    return group_name_error(name) is None


class GroupManager:
    """The table of groups of a store, with a broker's rules. RocketMQ's own groups are added at once.

    table           the settings, config/subscriptionGroup.json
    is_auto_create  autoCreateSubscriptionGroup: find() creates unknown groups
    changed         called with each group that is created; the caller writes table.persist(), which waits for the disk

    >>> import tempfile
    >>> groups = GroupManager(SubscriptionGroups(tempfile.mkdtemp()))
    >>> "audit" in groups, groups.find("audit").retry_queue_nums, "audit" in groups
    (False, 1, True)
    """

    def __init__(
        self,
        table: SubscriptionGroups,
        *,
        is_auto_create: bool = True,
        changed: Callable[[SubscriptionGroupConfig], object] = lambda group: None,
    ) -> None:
        self.table = table
        table.grow()
        self.is_auto_create = is_auto_create
        self._changed = changed
        for name in SYSTEM_GROUPS:
            if name not in table:
                self._create(name)

    def __contains__(self, name: object) -> bool:
        return name in self.table

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group; create an unknown one if the broker may.

        None: it may not, or the name is not allowed.
        """
        found = self.table.get(name)
        if found is not None:
            return found
        is_ours = name.startswith(SYSTEM_GROUP_PREFIX)
        if not (self.is_auto_create or is_ours) or not is_group_name(name):
            return None
        return self._create(name)

    def may_notify(self, name: str) -> bool:
        """Whether the consumers of a group are notified when one joins or leaves."""
        found = self.table.get(name)
        return found is None or found.notify_consumer_ids_changed_enable

    def _create(self, name: str) -> SubscriptionGroupConfig:
        made = SubscriptionGroupConfig(name)
        self.table.create(made, persist=False)
        self._changed(made)
        return made
