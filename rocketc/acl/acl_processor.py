"""The requests that read and change accounts, 50 to 54; and those of ACL 2.0, which are refused.

Source: RocketMQ AdminBrokerProcessor of 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from rocketc.acl.access import AccessControl
from rocketc.errors import RocketcError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.fastjson import to_bytes

UPDATE_ACCOUNT, DELETE_ACCOUNT, GET_VERSION, UPDATE_WHITE, GET_ACCOUNTS = 50, 51, 52, 53, 54
OF_ACL_2 = range(3001, 3011)
_FAILED = {
    UPDATE_ACCOUNT: Code.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    DELETE_ACCOUNT: Code.DELETE_ACL_CONFIG_FAILED,
    UPDATE_WHITE: Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
}


class AclProcessor:
    """Processes these requests. The check of requests has found that an administrator sent them.

    access    None: access control is off
    identity  brokerName, brokerAddr and clusterName of the broker
    """

    codes: Iterable[int] = (*_FAILED, GET_VERSION, GET_ACCOUNTS, *OF_ACL_2)

    def __init__(self, access: AccessControl | None, identity: dict[str, str]) -> None:
        self._access, self._identity = access, identity
        self._tasks: set[asyncio.Task[None]] = set()

    def process(self, call: Call) -> Answer | None:
        code = call.command.code
        if code in OF_ACL_2:
            return _unsupported(code, "this broker has ACL 1.0: accounts are in plain_acl.yml, with aclEnable=true")
        if self._access is None:
            return _unsupported(code, "access control is off; it needs aclEnable=true")
        if code == GET_VERSION:
            return self._version(self._access)
        if code == GET_ACCOUNTS:
            return _accounts(self._access)
        task = asyncio.ensure_future(self._change(call, self._work(self._access, call)))
        self._tasks.add(task)  # otherwise nothing refers to it
        task.add_done_callback(self._tasks.discard)
        return None

    def _work(self, access: AccessControl, call: Call) -> Coroutine[Any, Any, None]:
        values = call.values
        if call.command.code == UPDATE_ACCOUNT:
            return access.set_account(values)
        if call.command.code == DELETE_ACCOUNT:
            return access.delete_account(values["accessKey"])
        patterns = [one.strip() for one in values["globalWhiteAddrs"].split(",") if one.strip()]
        return access.set_white(patterns, values.get("aclFileFullPath", ""))

    async def _change(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            answer = Answer()
        except (ValueError, OSError, RocketcError) as error:
            answer = Answer(_FAILED[call.command.code], remark=str(error))
        call.later(answer)

    def _version(self, access: AccessControl) -> Answer:
        versions = {path: _data_version(access.version_of(path)) for path in access.rules.files}
        return Answer(
            values={
                "version": to_bytes(_data_version(access.version_of(access.default_file)), compact=True).decode(),
                "allAclFileVersion": to_bytes(versions, compact=True).decode(),
                **self._identity,
            }
        )


def _unsupported(code: int, why: str) -> Answer:
    return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported: {why}")


def _data_version(version: tuple[int, int]) -> dict[str, int]:
    counter, timestamp = version
    return {"counter": counter, "timestamp": timestamp}


def _accounts(access: AccessControl) -> Answer:
    """All accounts, with their secrets, as RocketMQ answers. The data of the files has the words as they are there."""
    files = access.rules.files.values()
    white = [str(one) for file in files for one in file.data.get("globalWhiteRemoteAddresses") or () if one]
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        for one, account in zip(file.data.get("accounts") or (), file.accounts, strict=True):
            found.setdefault(
                account.access_key,
                {
                    "accessKey": account.access_key,
                    "admin": account.is_admin,
                    "defaultGroupPerm": one.get("defaultGroupPerm"),
                    "defaultTopicPerm": one.get("defaultTopicPerm"),
                    "groupPerms": one.get("groupPerms"),
                    "secretKey": account.secret_key,
                    "topicPerms": one.get("topicPerms"),
                    "whiteRemoteAddress": one.get("whiteRemoteAddress"),
                },
            )
    accounts = [{name: value for name, value in one.items() if value is not None} for one in found.values()]
    return Answer(body=to_bytes({"globalWhiteAddrs": white, "plainAccessConfigs": accounts}, compact=True))
