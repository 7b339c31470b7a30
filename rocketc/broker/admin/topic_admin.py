"""Topics as tools see them: created, changed, deleted, listed; queues without messages or topic cleaned.

Source: RocketMQ AdminBrokerProcessor, TopicConfigManager, TopicValidator; codes and remarks are those of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.broker.admin.attributes import asks_for_mixed, changed_attributes, parse_attributes
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.bodies import INTS, enum_of, flag_of, list_of, number_of, object_of, parse_body, text_of
from rocketc.broker.topics import TopicManager, name_fault
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.store.cleaning import unused_topics
from rocketc.tables.topics import TopicConfig, TopicFilterType

CREATE, CREATE_LIST, ALL, DELETE, SYSTEM, ONE = 17, 18, 21, 215, 305, 351
CLEAN_EXPIRED_QUEUES, CLEAN_UNUSED_TOPICS, CLEAN_LOG = 306, 316, 329
TOPICS_MOST = 10_000  # of one list
NAME_MOST = 1000  # characters; name_fault() has the real limit
ATTRIBUTES_MOST = 10_000  # characters
_UNSET = "not set any response code"  # RocketMQ's remark in answers of success to some requests


class CleanedStore(Protocol):
    """What TopicAdmin needs of a store."""

    def create_topic(self, name: str, **fields: Any) -> TopicConfig: ...
    def delete_topics(self, names: str | Iterable[str], *, retain: Container[str] = ...) -> int: ...
    def queues(self) -> list[tuple[str, int]]: ...
    def clean_expired_queues(self) -> list[tuple[str, int]]: ...
    def clean(self) -> object: ...


QUEUES_MOST = 1 << 16  # of one topic: requests about a topic look at all of them


class TopicAdmin:
    """Answers requests about topics.

    work     runs what takes long
    forget   called with each topic before it is deleted: no more sends are taken for it
    """

    codes = (CREATE, CREATE_LIST, ALL, DELETE, SYSTEM, ONE, CLEAN_EXPIRED_QUEUES, CLEAN_UNUSED_TOPICS, CLEAN_LOG)

    def __init__(
        self, store: CleanedStore, topics: TopicManager, work: StoreWork, forget: Callable[[str], object]
    ) -> None:
        self._store, self._topics, self._work, self._forget = store, topics, work, forget
        self._by_code: dict[int, Callable[[Call], Answer | None]] = {
            CREATE: self._create,
            CREATE_LIST: self._create_list,
            ALL: self._all,
            DELETE: self._delete,
            SYSTEM: self._system,
            ONE: self._one,
            CLEAN_EXPIRED_QUEUES: lambda call: self._run(call, store.clean_expired_queues),
            CLEAN_UNUSED_TOPICS: self._clean_unused,
            CLEAN_LOG: lambda call: self._run(call, store.clean),
        }

    def process(self, call: Call) -> Answer | None:
        return self._by_code[call.command.code](call)

    # created and changed

    def _create(self, call: Call) -> Answer | None:
        found = call.values
        try:
            changes = parse_attributes(found.get("attributes", ""))
        except ValueError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        made = self._topic(
            found["topic"],
            changes,
            read_queue_nums=found["readQueueNums"],
            write_queue_nums=found["writeQueueNums"],
            perm=found["perm"],
            order=found.get("order", False),
            topic_filter_type=found["topicFilterType"],
            topic_sys_flag=found.get("topicSysFlag", 0),
        )
        if isinstance(made, Answer):
            return made
        self._put(made, lambda fault: call.later(_answer(fault, _UNSET)))
        return None

    def _put(self, made: TopicConfig, done: Callable[[str | None], object]) -> None:
        """Create or change a topic; after a deletion of it that is under way. The store learns of queues of batches."""
        name, is_hidden = made.topic_name, self._topics.is_hidden(made.topic_name)
        is_batch = made.queue_type != TopicConfig(name).queue_type and self._topics.get(name) is None
        if not is_hidden and not is_batch:
            self._topics.change(made, done)
            return

        def work() -> None:
            if is_batch:
                self._store.create_topic(
                    name,
                    read_queue_nums=made.read_queue_nums,
                    write_queue_nums=made.write_queue_nums,
                    perm=made.perm,
                    order=made.order,
                    attributes=made.attributes,
                )

        def ended(fault: str | None) -> None:
            if fault is None:
                self._topics.change(made, done, is_new=True)
            else:
                done(fault)

        self._work.run(work, ended)

    def _create_list(self, call: Call) -> Answer | None:
        data = object_of(parse_body(call.command.body), "the body")
        if not isinstance(data.get("topicConfigList"), list):
            return Answer(Code.SYSTEM_ERROR, remark="the body lacks the list topicConfigList")
        all_made = []
        for one in list_of(data, "topicConfigList", TOPICS_MOST):
            made = self._decoded(object_of(one, "a topic"))
            if isinstance(made, Answer):
                return made  # nothing was changed
            all_made.append(made)
        faults: list[str | None] = []

        def done(fault: str | None) -> None:
            faults.append(fault)
            if len(faults) >= len(all_made):
                call.later(_answer(next(filter(None, faults), None), _UNSET))

        for made in all_made:
            self._put(made, done)
        if not all_made:
            return Answer(remark=_UNSET)
        return None

    def _decoded(self, data: dict[str, Any]) -> TopicConfig | Answer:
        usual = TopicConfig("topic")
        numbers = {
            field: number_of(data, name, INTS) if data.get(name) is not None else getattr(usual, field)
            for field, name in (
                ("read_queue_nums", "readQueueNums"),
                ("write_queue_nums", "writeQueueNums"),
                ("perm", "perm"),
                ("topic_sys_flag", "topicSysFlag"),
            )
        }
        changes = object_of(data.get("attributes") or {}, "the member attributes")
        texts = {str(name): text_of(changes, name, ATTRIBUTES_MOST) for name in changes}
        filter_type = enum_of(data, "topicFilterType", TopicFilterType)
        return self._topic(
            text_of(data, "topicName", NAME_MOST),
            texts,
            order=flag_of(data, "order"),
            topic_filter_type=filter_type.name
            if filter_type
            else text_of(data, "topicFilterType", NAME_MOST) or usual.topic_filter_type,
            **numbers,
        )

    def _topic(self, name: str, changes: dict[str, str], **fields: Any) -> TopicConfig | Answer:
        if (refused := self._refusal(name)) is not None:
            return refused
        if fields["topic_filter_type"] not in TopicFilterType.__members__:
            return Answer(Code.SYSTEM_ERROR, remark=f"topicFilterType = [{fields['topic_filter_type']}] value invalid")
        if max(fields["read_queue_nums"], fields["write_queue_nums"]) > QUEUES_MOST:
            return Answer(Code.INVALID_PARAMETER, remark=f"{name}: at most {QUEUES_MOST} queues")
        before = self._topics.get(name)
        try:
            attributes = changed_attributes(before.attributes if before else {}, changes, is_new=before is None)
        except ValueError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        if asks_for_mixed(changes):
            return Answer(Code.INVALID_PARAMETER, remark="MIXED message type is not supported.")
        try:
            return TopicConfig(name, attributes=attributes, **fields)
        except ValueError as error:
            return Answer(Code.INVALID_PARAMETER, remark=f"{name}: {error}")

    def _refusal(self, name: str) -> Answer | None:
        if (fault := name_fault(name)) is not None:
            return Answer(Code.INVALID_PARAMETER, remark=fault)
        if self._topics.is_system(name):
            return Answer(Code.INVALID_PARAMETER, remark=f"The topic[{name}] is conflict with system topic.")
        return None

    # listed

    def _all(self, call: Call) -> Answer:
        table = self._topics.table
        topics = {name: forms.topic_object(topic) for name, topic in dict(table).items()}
        version = forms.data_version(table)
        found = {
            "dataVersion": version,
            "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": version["timestamp"]},
            "topicConfigTable": topics,
            "topicQueueMappingDetailMap": {},  # static topics are not supported
            "topicQueueMappingInfoMap": {},
        }
        return Answer(body=forms.body(found))

    def _one(self, call: Call) -> Answer:
        topic = self._topics.get(call.values["topic"])
        if topic is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"No topic in this broker. topic: {call.values['topic']}")
        return Answer(body=forms.body(forms.topic_object(topic)))

    def _system(self, call: Call) -> Answer:
        return Answer(body=forms.body({"topicList": sorted(self._topics.system)}))

    # deleted and cleaned

    def _delete(self, call: Call) -> Answer | None:
        name = call.values.get("topic", "")
        if (refused := self._refusal(name)) is not None:
            return refused
        self.delete(name, lambda fault: call.later(_answer(fault)))
        return None

    def delete(self, name: str, done: Callable[[str | None], object]) -> None:
        """Delete a topic, its queues and its offsets. Call `done` with None, or with the text of an error."""
        self._delete_all([name], done)

    def _delete_all(self, names: list[str], done: Callable[[str | None], object], retain: Container[str] = ()) -> None:
        self._topics.hide(names)
        for name in names:
            self._forget(name)

        def ended(fault: str | None) -> None:
            self._topics.unhide(names)
            if fault is not None:
                self._topics.save()  # the table may lack the topics in memory only
            done(fault)

        self._work.run(lambda: self._store.delete_topics(names, retain=retain), ended)

    def _clean_unused(self, call: Call) -> Answer | None:
        """Delete the queues whose topics are not in the table.

        The topics are found and hidden in one turn of the loop, so no send creates one of them in between. A program
        may put to one of them meanwhile: then it is in the table, and the store keeps it.
        """
        table = self._topics.table
        unused = unused_topics({topic for topic, _ in self._store.queues()}, table)
        if not unused:
            return Answer()
        self._delete_all(unused, lambda fault: call.later(_answer(fault)), retain=table)
        return None

    def _run(self, call: Call, work: Callable[[], object]) -> None:
        self._work.run(work, lambda fault: call.later(_answer(fault)))


def _answer(fault: str | None, remark: str | None = None) -> Answer:
    return Answer(remark=remark) if fault is None else Answer(Code.SYSTEM_ERROR, remark=fault)
