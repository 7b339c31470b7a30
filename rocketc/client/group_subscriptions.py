"""The subscriptions of the consumers of one group in this process: they must be the same.

A broker keeps one subscription of a group, and its members divide the queues of all topics. A member that does not
subscribe to a topic gets queues of it, too, whose messages are not consumed.
Source: RocketMQ ConsumerManager, RebalanceImpl.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping

from rocketc.client.instance import ClientInstance
from rocketc.client.subscriptions import SubscriptionData
from rocketc.errors import SubscriptionError

_log = logging.getLogger("rocketc.client")

_SECONDS = 20.0  # for which members may differ: a program subscribes them one after the other
_members: weakref.WeakSet[GroupSubscriptions] = weakref.WeakSet()

Topics = Mapping[str, SubscriptionData]


class GroupSubscriptions:
    """The subscriptions of one consumer, which are compared with those of the other ones of its group.

    cluster  addresses of its name servers
    topics   returns its subscriptions by topic; empty if it is not a member
    """

    def __init__(
        self, instance: ClientInstance, cluster: Iterable[str], group: str, topics: Callable[[], Topics]
    ) -> None:
        self._instance, self._group, self._topics = instance, group, topics
        self._cluster = frozenset(cluster)
        self._differs_since: float | None = None
        self._is_reported = False

    def join(self) -> None:
        """Begin to be a member. Raises SubscriptionError if another member has other subscriptions."""
        mine = self._topics()
        for theirs in self._others():
            if mine and theirs and (mine.keys() != theirs.keys() or _conflict(mine, theirs)):
                raise self._refused(mine, theirs)
        _members.add(self)

    def check(self, new: SubscriptionData) -> None:
        """Raise SubscriptionError if the members can't have the same topics with a new one, or not its expression."""
        mine = {**self._topics(), new.topic: new}
        for theirs in self._others():
            if (mine.keys() - theirs.keys() and theirs.keys() - mine.keys()) or _conflict(mine, theirs):
                raise self._refused(mine, theirs)

    def watch(self, now: float) -> None:
        """Warn once if a topic is missing at a member for long. now: loop.time()"""
        mine = self._topics()
        other = next((one for one in self._others() if mine.keys() < one.keys()), None)
        if other is None:
            self._differs_since, self._is_reported = None, False
        elif self._differs_since is None:
            self._differs_since = now
        elif now - self._differs_since >= _SECONDS and not self._is_reported:
            self._is_reported = True
            _log.warning(
                "%s: a consumer of this process does not subscribe to %s, as another one does: its share of their "
                "messages is not consumed",
                self._group, ", ".join(sorted(other.keys() - mine.keys())),
            )  # fmt: skip

    def _others(self) -> list[Topics]:
        found = [one for one in _members if one is not self and one._group == self._group]
        return [one._topics() for one in found if one._cluster == self._cluster and one._instance.is_member]

    def _refused(self, mine: Topics, theirs: Topics) -> SubscriptionError:
        return SubscriptionError(
            f"group {self._group!r}: this consumer subscribes to {_shown(mine)}, and another one of this process to "
            f"{_shown(theirs)}; the consumers of a group need the same subscriptions: use another group"
        )


def _conflict(mine: Topics, theirs: Topics) -> bool:
    return any(mine[topic].meaning != theirs[topic].meaning for topic in mine.keys() & theirs.keys())


def _shown(topics: Topics) -> str:
    """Return topics with their expressions, for a message."""
    return ", ".join(f"{name} ({topics[name].sub_string})" for name in sorted(topics))


def note_change(group: str, before: SubscriptionData | None, after: SubscriptionData) -> None:
    """Warn if a call replaces the expression of a topic: it may have been meant as a second one.

    before  of the topic; None: there was none

    >>> note_change("billing", None, SubscriptionData("orders", "web"))
    """
    if before is not None and before.meaning != after.meaning:
        _log.warning(
            "%s: the subscription of topic %s was %s, and is %s from now on: a topic has one expression",
            group, after.topic, before.sub_string, after.sub_string,
        )  # fmt: skip
