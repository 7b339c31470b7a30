"""The rules for unknown groups; the groups of a new broker were seen on 5.3.3."""

import pytest

from rocketc.broker.groups import SYSTEM_GROUPS, GroupManager
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups


def manager(root, **options):
    return GroupManager(SubscriptionGroups(root), **options)


def test_a_new_broker_has_rocketmqs_groups(tmp_path):
    created = []
    groups = manager(tmp_path, changed=created.append)
    assert sorted(groups.table) == sorted(SYSTEM_GROUPS) == sorted(one.group_name for one in created)
    assert len(SYSTEM_GROUPS) == 8
    assert groups.table.changed and groups.table.persist()
    again = []
    assert not manager(tmp_path, changed=again.append).table.changed and again == []


def test_unknown_groups_are_created(tmp_path):
    created = []
    groups = manager(tmp_path)
    groups._changed = created.append
    assert groups.find("audit") == SubscriptionGroupConfig("audit")
    assert groups.find("audit") is groups.find("audit") and created == [SubscriptionGroupConfig("audit")]
    groups.table.create(SubscriptionGroupConfig("mine", retry_max_times=3))
    assert groups.find("mine").retry_max_times == 3


@pytest.mark.parametrize("name", ["CID_RMQ_SYS_X", "TOOLS_CONSUMER"])
def test_groups_of_the_system_exist_without_auto_creation(tmp_path, name):
    groups = manager(tmp_path, is_auto_create=False)
    assert groups.find("audit") is None and "audit" not in groups
    assert groups.find(name).group_name == name


@pytest.mark.parametrize("name", ["", " ", "my audit", "a.b", "é", "g" * 256, "a/b", "a\n", "CID_RMQ_SYS_ X"])
def test_names_that_are_not_created(tmp_path, name):
    groups = manager(tmp_path)
    assert groups.find(name) is None and name not in groups


@pytest.mark.parametrize("name", ["g" * 255, "a|b%c", "%RETRY%x", "_-0Z"])
def test_names_that_are_created(tmp_path, name):
    assert manager(tmp_path).find(name) is not None


def test_may_notify(tmp_path):
    groups = manager(tmp_path)
    groups.table.create(SubscriptionGroupConfig("quiet", notify_consumer_ids_changed_enable=False))
    assert [groups.may_notify(name) for name in ("quiet", "TOOLS_CONSUMER", "unknown")] == [False, True, True]
    assert "unknown" not in groups
