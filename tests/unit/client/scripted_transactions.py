"""Brokers that store half messages and ask about them, on virtual time and a network in memory."""

from unit.client.scripted import Cluster, play

from rocketc.client.async_transaction_producer import AsyncTransactionProducer
from rocketc.format._encoding import encode
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer

END, CHECK = CODES["END_TRANSACTION"], CODES["CHECK_TRANSACTION_STATE"]
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


class TextlessError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class TransactionCluster(Cluster):
    """status: of the half messages; transaction_id: whether their answers have it, as those of RocketMQ."""

    def __init__(self, *names, status=Code.SUCCESS, transaction_id=True, **options):
        super().__init__(dict.fromkeys(names or "a", self._store), **options)
        self.status, self.transaction_id = status, transaction_id

    def _store(self, call):
        key = properties_of(call).get("UNIQ_KEY")
        values = {"msgId": f"{call.command.opaque:032X}", "queueId": call.values["queueId"], "queueOffset": 7}
        return Answer(self.status, values | ({"transactionId": key} if self.transaction_id else {}))

    @property
    def ends(self):
        """END_TRANSACTION of each broker, in order: its fields, and the remark."""
        calls = [call for broker in self.brokers.values() for call in broker.asked if call.command.code == END]
        return [call.values | {"remark": call.command.remark} for call in calls]

    @property
    def states(self):
        return [end["commitOrRollback"] for end in self.ends]

    def halves(self, name="a"):
        return [call for call in self.brokers[name].asked if call.command.code == 310]

    def transaction_producer(self, check=lambda message: "UNKNOW", **options):
        return self.producer(kind=AsyncTransactionProducer, check=check, **options)

    def ask(self, body=b"one", broker="a", *, fields=None, properties=None, record=None):
        """Ask each client of a broker about a half message."""
        values = {
            "topic": HALF_TOPIC, "tranStateTableOffset": 71, "commitLogOffset": 7100, "msgId": "K1",
            "transactionId": "T1", "offsetMsgId": "O1",
        }  # fmt: skip
        values |= fields or {}
        about = {"UNIQ_KEY": "K1", "PGROUP": "shop", "TRAN_MSG": "true", "KEYS": "o-1", "REAL_TOPIC": "orders"}
        about |= properties or {}
        if record is None:
            about = {name: text for name, text in about.items() if text is not None}
            record = encode("orders", body, queue_id=1, queue_offset=71, phy_offset=7100, properties=about)
        server = self.servers[self.address(broker)]
        for connection in list(server.connections):
            server.send(connection, CHECK, {name: one for name, one in values.items() if one is not None}, record)


def properties_of(call):
    return dict(one.split("\x01", 1) for one in call.values["properties"].split("\x02") if one)


def run(work, cluster=None, **options):
    """Run work(producer, cluster) with a producer of transactions; return its result."""

    async def main():
        stage = TransactionCluster() if cluster is None else cluster
        async with stage.transaction_producer(**options) as producer:
            return await work(producer, stage)

    return play(main())
