"""Where a consumer keeps the next offset of each queue: in the broker, or in a file for broadcasting.

Both kinds keep a table in memory. The store in the broker says which requests are due; the caller sends them. The store
in a file reads and writes its file when it is called, so call it in a thread. Source: RocketMQ RemoteBrokerOffsetStore,
LocalFileOffsetStore, ControllableOffset.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from rocketc.client.bodies import Fields
from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, ConfigTableError, StoreIOError, StoreLockedError
from rocketc.files.durable import make_folder
from rocketc.remoting.codes import Code
from rocketc.tables.table_file import read_object, write_table

QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET = 14, 15
NOT_FOUND, FAILED = -1, -2  # instead of an offset
LOCAL_FOLDER = ".rocketmq_offsets"  # in the home folder, for broadcasting consumers

_log = logging.getLogger("rocketc.client")
_LONGS = range(-(1 << 63), 1 << 63)


class OffsetTable:
    """The next offset of each queue, in memory. One thread may change a table while others read it.

    >>> table, queue = OffsetTable(), MessageQueue("orders", "broker-a", 0)
    >>> table.update(queue, 7, increase_only=True)
    >>> table.update(queue, 5, increase_only=True)
    >>> table.get(queue)
    7
    """

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int:
        """Return the offset of a queue; NOT_FOUND if it is not known."""
        return self._offsets.get(queue, NOT_FOUND)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the offset of a queue, unless it is frozen.

        increase_only  ignore an offset that is smaller than the present one
        """
        if queue not in self._frozen and not (increase_only and offset < self._offsets.get(queue, offset)):
            self._offsets[queue] = offset

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a queue, and ignore each update of it until remove()."""
        self._frozen.add(queue)
        self._offsets[queue] = offset

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue: another consumer has it now. Its next offset stays where it was persisted."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def offsets(self) -> dict[MessageQueue, int]:
        """Return a copy of the table."""
        return dict(self._offsets)


class RemoteBrokerOffsetStore(OffsetTable):
    """The offsets of a clustering consumer. The broker of a queue keeps them.

    >>> store, queue = RemoteBrokerOffsetStore("audit"), MessageQueue("orders", "broker-a", 0)
    >>> store.query(queue)
    {'consumerGroup': 'audit', 'topic': 'orders', 'queueId': 0}
    >>> store.answered(queue, 12), store.get(queue)
    (12, 12)
    >>> store.persist(queue)
    {'consumerGroup': 'audit', 'topic': 'orders', 'queueId': 0, 'commitOffset': 12}
    """

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group

    def query(self, queue: MessageQueue) -> dict[str, Any]:
        """Return the fields of QUERY_CONSUMER_OFFSET, for the broker of the queue; answered() takes the outcome."""
        return {"consumerGroup": self._group, "topic": queue.topic, "queueId": queue.queue_id}

    def answered(self, queue: MessageQueue, outcome: int | Exception) -> int:
        """Take the outcome of a query(): the offset, or the error of the call.

        Returns the offset, and keeps it; NOT_FOUND if the broker does not have one; FAILED if that is not
        known.
        """
        if isinstance(outcome, Exception):
            is_missing = isinstance(outcome, AnswerError) and outcome.code == Code.QUERY_NOT_FOUND
            return NOT_FOUND if is_missing else FAILED
        self.update(queue, outcome, increase_only=False)
        return outcome

    def persist(self, queue: MessageQueue) -> dict[str, Any] | None:
        """Return the fields of UPDATE_CONSUMER_OFFSET for one queue; None if its offset is not known.

        Send it as a oneway request to the master of the queue's broker, or to a slave if there is no master.
        """
        offset = self.get(queue)
        return None if offset == NOT_FOUND else {**self.query(queue), "commitOffset": offset}

    def persist_all(self, owned: Iterable[MessageQueue]) -> dict[MessageQueue, dict[str, Any]]:
        """Return persist() of each queue that this consumer has. Queues that it does not have any more are forgotten.

        owned  the queues of this consumer; if it is empty, nothing is forgotten
        """
        owned = set(owned)
        if owned:
            for queue in self._offsets.keys() - owned:
                self.remove(queue)
        return {queue: fields for queue in sorted(owned) if (fields := self.persist(queue)) is not None}


class LocalFileOffsetStore(OffsetTable):
    """The offsets of a broadcasting consumer, in a file of RocketMQ's form, which its client may use, too.

    folder     of all consumers of this user: see local_folder()
    client_id  a part of the path, as in RocketMQ: a consumer with another client id has another file
    Raises ValueError if the client id or the group cannot be the name of a folder.

    >>> import tempfile
    >>> folder, queue = tempfile.mkdtemp(), MessageQueue("orders", "broker-a", 0)
    >>> store = LocalFileOffsetStore(folder, "10.0.0.1@DEFAULT", "audit")
    >>> store.update(queue, 17, increase_only=False)
    >>> store.persist_all([queue])
    >>> again = LocalFileOffsetStore(folder, "10.0.0.1@DEFAULT", "audit")
    >>> again.load()
    >>> again.get(queue)
    17
    """

    def __init__(self, folder: str | os.PathLike[str], client_id: str, group: str) -> None:
        super().__init__()
        for name in (client_id, group):
            if not name or name in (".", "..") or "/" in name or "\0" in name:
                raise ValueError(f"{name!r} cannot be the name of a folder, so no file of offsets is possible")
        self.path = os.path.join(os.fspath(folder), client_id, group, "offsets.json")
        self._lock: int | None = None  # the descriptor of the folder

    def open(self) -> None:
        """Make the folder, lock it for this process, and load() the file. Nothing is locked if that fails.

        Raises StoreIOError if the folder cannot be written, StoreLockedError if another process has it, and the
        errors of load().
        """
        folder = os.path.dirname(self.path)
        try:
            make_folder(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise StoreIOError(errno.EACCES, os.strerror(errno.EACCES), folder)
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLockedError(
                    f"{self.path}: another process keeps its offsets in this file; "
                    "give each broadcasting consumer of this computer another instance_name"
                ) from None
            self.load()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                text = "make it readable and writable, or set local_offset_store_dir"
                raise StoreIOError(error.errno, f"{error.strerror}; {text}", error.filename or folder) from None
            raise

    def close(self) -> None:
        """Unlock what open() locked; idempotent."""
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a forked child may have the descriptor, too
            os.close(self._lock)
            self._lock = None

    def load(self) -> None:
        """Read the file, for the start of the consumer. If it is missing or damaged, read its `.bak`.

        Raises ConfigTableError if the `.bak` is damaged, too, and StoreIOError if a file cannot be read.
        """
        self._offsets.update(self._read()[0])

    def read(self, queue: MessageQueue) -> int:
        """Read the offset of a queue from the file, and keep it. Returns NOT_FOUND or FAILED instead of an offset."""
        try:
            offset = self._read()[0].get(queue, NOT_FOUND)
        except (ConfigTableError, StoreIOError) as error:
            _log.warning("%s: the offset of a queue cannot be read", error)
            return FAILED
        if offset != NOT_FOUND:
            self.update(queue, offset, increase_only=False)
        return offset

    def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue, if it is known: see persist_all()."""
        self.persist_all([queue])

    def persist_all(self, owned: Iterable[MessageQueue]) -> None:
        """Write the offsets of these queues. The file keeps the other entries that it has.

        The file is replaced as a whole and made durable, and its previous version becomes `.bak`. Nothing is written if
        the file has these offsets already. Raises StoreIOError or StoreFullError.
        """
        known = {queue: offset for queue in owned if (offset := self.get(queue)) != NOT_FOUND}
        try:
            found, is_whole = self._read()
        except ConfigTableError as error:
            _log.warning("%s: the file of offsets is written again", error)
            found, is_whole = {}, False
        if known and not (is_whole and known.items() <= found.items()):
            make_folder(os.path.dirname(self.path))
            write_table(self.path, encode_offsets({**found, **known}))

    def _read(self) -> tuple[dict[MessageQueue, int], bool]:
        """Return the offsets in the file or its `.bak`, and whether they are those of the file."""
        first: ConfigTableError | None = None
        for path in (self.path, f"{self.path}.bak"):
            try:
                if os.path.exists(path) and os.path.getsize(path):  # as in RocketMQ, an empty file is a missing one
                    found = decode_offsets(Fields(read_object(path, object_names=True)))
                    if first is not None:
                        _log.warning("%s: its .bak is read instead", first)
                    return found, path == self.path
            except ValueError as error:
                wrong = error if isinstance(error, ConfigTableError) else ConfigTableError(f"{path}: {error}")
                if path != self.path:
                    both = wrong if first is None else f"{first}; {wrong}"
                    raise ConfigTableError(
                        f"{both}; restore one of the files, or delete both: then consume_from_where says where to begin"
                    ) from None
                first = wrong
            except StoreIOError as error:
                if error.errno != errno.ENOENT:  # removed since
                    raise
        if first is not None:  # RocketMQ begins without offsets, too
            _log.warning("%s: there is no .bak, so the consumer begins without offsets", first)
        return {}, first is None


def local_folder(home: str | os.PathLike[str] | None = None) -> str:
    """Return the folder where RocketMQ's client keeps the offsets of broadcasting consumers.

    home  None: the home folder of the user

    >>> local_folder("/home/ann")
    '/home/ann/.rocketmq_offsets'
    """
    return os.path.join(os.path.expanduser("~") if home is None else os.fspath(home), LOCAL_FOLDER)


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return the content of a file of offsets, for write_table().

    >>> encode_offsets({MessageQueue("orders", "broker-a", 0): 17})
    {'offsetTable': {(('brokerName', 'broker-a'), ('queueId', 0), ('topic', 'orders')): 17}}
    """
    return {
        "offsetTable": {
            (("brokerName", queue.broker_name), ("queueId", queue.queue_id), ("topic", queue.topic)): offset
            for queue, offset in offsets.items()
        }
    }


def decode_offsets(fields: Fields) -> dict[MessageQueue, int]:
    """Return the offsets of a file. Raises ValueError for one that RocketMQ does not write.

    >>> from rocketc.client.bodies import parse_fields
    >>> decode_offsets(parse_fields(b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:17}}'))
    {MessageQueue(topic='t', broker_name='b', queue_id=0): 17}
    """
    found = {}
    for key, offset in fields.numbers("offsetTable"):
        if not isinstance(key, Fields) or offset not in _LONGS:
            raise ValueError("offsetTable is not a table of offsets by queue")
        found[MessageQueue(key.text("topic"), key.text("brokerName"), key.number("queueId"))] = offset
    return found
