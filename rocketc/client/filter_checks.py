"""The question to brokers whether they accept an expression that is not one of tags, before the first pull.

Source: RocketMQ MQClientInstance.checkClientInBroker.
"""

from __future__ import annotations

import asyncio
import logging

from rocketc.client.connections import UNREACHABLE
from rocketc.client.instance import ClientInstance
from rocketc.client.subscriptions import SubscriptionData, check_filter_version, encode_client_config
from rocketc.errors import AnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.subscribing import is_tag_type

_log = logging.getLogger("rocketc.client")


class FilterChecks:
    """Asks the brokers of a topic about the expressions of a consumer. Those of tags are always accepted.

    group    of the consumer
    seconds  for the route of a new topic
    """

    def __init__(self, instance: ClientInstance, group: str, seconds: float) -> None:
        self._instance, self._group, self._seconds = instance, group, seconds

    async def check(self, subscription: SubscriptionData) -> None:
        """Ask the topic's brokers; none if its route is not known. Brokers that are not reached are left out.

        Raises AnswerError if a broker refuses the expression, or does not know expressions of this type.
        """
        if is_tag_type(subscription.expression_type):
            return
        instance = self._instance
        body = encode_client_config(instance.client_id, self._group, subscription)
        route = instance.routes.route(subscription.topic)
        for address in [] if route is None else route.masters().values():
            check_filter_version(subscription, address, instance.heartbeats.versions.get(address))
            try:
                await instance.connections.call(address, CODES["CHECK_CLIENT_CONFIG"], body=body)
            except UNREACHABLE as error:
                _log.debug("%s: %s does not check the subscription of %s: %s", self._group, address, route, error)
            except AnswerError as error:
                if error.code == Code.REQUEST_CODE_NOT_SUPPORTED:
                    check_filter_version(subscription, address, 0)
                raise

    async def check_new(self, subscription: SubscriptionData, *, is_new: bool) -> None:
        """Ask about a subscription of a running consumer, before anything changes. Raises as check().

        is_new  the consumer does not have the topic yet: after an error its route is not watched
        """
        if is_tag_type(subscription.expression_type):
            return
        topic, routes = subscription.topic, self._instance.routes
        await routes.watch(topic, asyncio.get_running_loop().time() + self._seconds)
        try:
            await self.check(subscription)
        except BaseException:
            if is_new:
                routes.unwatch(topic)
            raise
