"""The one table of requests: code, name, fields, fields of the answer, bodies. The docs page and the tests read it too.

Source: RocketMQ RequestCode, remoting/protocol/header, as of 5.3.3.
"""

from __future__ import annotations

from rocketc.remoting.admin_requests import ADMIN_REQUESTS
from rocketc.remoting.request_types import (
    BOOL,
    BROKER,
    BROKER_NAME,
    CONSUMER_GROUP,
    GROUP,
    INT,
    LONG,
    QUEUE_ID,
    TEXT,
    TOPIC,
    Field,
    Kind,
    Request,
)

__all__ = ["BOOL", "CODES", "INT", "LONG", "REQUESTS", "TEXT", "Field", "Kind", "Request"]

HALF_PLACE = (Field("tranStateTableOffset", LONG), Field("commitLogOffset", LONG))  # of a half message
TRANSACTION_IDS = (Field("msgId", TEXT, required=False), Field("transactionId", TEXT, required=False))

SEND = (
    Field("producerGroup", TEXT, short="a"),
    Field("topic", TEXT, short="b"),
    Field("defaultTopic", TEXT, short="c"),
    Field("defaultTopicQueueNums", INT, short="d"),
    Field("queueId", INT, short="e"),
    Field("sysFlag", INT, short="f"),
    Field("bornTimestamp", LONG, short="g"),
    Field("flag", INT, short="h"),
    Field("properties", TEXT, required=False, short="i"),
    Field("reconsumeTimes", INT, required=False, short="j"),
    Field("unitMode", BOOL, required=False, short="k"),
    Field("maxReconsumeTimes", INT, required=False, short="l"),
    Field("batch", BOOL, required=False, short="m"),
    Field("brokerName", TEXT, required=False, short="n"),
)
SENT = (
    Field("msgId", TEXT),
    QUEUE_ID,
    Field("queueOffset", LONG),
    Field("transactionId", TEXT, required=False),
    Field("batchUniqId", TEXT, required=False),
    Field("recallHandle", TEXT, required=False),
)
PUSHED = (
    *SEND[:11],
    Field("bornHost", TEXT),
    Field("storeHost", TEXT),
    Field("storeTimestamp", LONG),
)
PULL = (
    CONSUMER_GROUP,
    TOPIC,
    QUEUE_ID,
    Field("queueOffset", LONG),
    Field("maxMsgNums", INT),
    Field("sysFlag", INT),
    Field("commitOffset", LONG),
    Field("suspendTimeoutMillis", LONG),
    Field("subscription", TEXT, required=False),
    Field("subVersion", LONG),
    Field("expressionType", TEXT, required=False),
    Field("maxMsgBytes", INT, required=False),
    Field("requestSource", INT, required=False),
    Field("proxyFrowardClientId", TEXT, required=False),
)
PULLED = (
    Field("suggestWhichBrokerId", LONG),
    Field("nextBeginOffset", LONG),
    Field("minOffset", LONG),
    Field("maxOffset", LONG),
    Field("offsetDelta", LONG, required=False),
    Field("topicSysFlag", INT, required=False),
    Field("groupSysFlag", INT, required=False),
    Field("forbiddenType", INT, required=False),
)
INDEXED = (Field("indexLastUpdateTimestamp", LONG), Field("indexLastUpdatePhyoffset", LONG))
REGISTERED = (Field("haServerAddr", TEXT, required=False), Field("masterAddr", TEXT, required=False))

_REQUESTS = (
    Request(10, "SEND_MESSAGE", fields=SEND, answer=SENT, body="the message's body"),
    Request(11, "PULL_MESSAGE", fields=PULL, answer=PULLED, answer_body="the stored records"),
    Request(
        12,
        "QUERY_MESSAGE",
        fields=(
            TOPIC,
            Field("key", TEXT),
            Field("maxNum", INT),
            Field("beginTimestamp", LONG),
            Field("endTimestamp", LONG),
        ),
        answer=INDEXED,
        answer_body="the stored records",
    ),
    Request(
        14,
        "QUERY_CONSUMER_OFFSET",
        fields=(
            CONSUMER_GROUP,
            TOPIC,
            QUEUE_ID,
            Field("setZeroIfNotFound", BOOL, required=False),
        ),
        answer=(Field("offset", LONG, required=False),),
    ),
    Request(
        15,
        "UPDATE_CONSUMER_OFFSET",
        fields=(
            CONSUMER_GROUP,
            TOPIC,
            Field("queueId", INT, required=False),  # without it, a broker answers INVALID_PARAMETER
            Field("commitOffset", LONG, required=False),
        ),
    ),
    Request(28, "GET_BROKER_RUNTIME_INFO", answer_body="KVTable"),
    Request(
        29,
        "SEARCH_OFFSET_BY_TIMESTAMP",
        fields=(
            TOPIC,
            QUEUE_ID,
            Field("timestamp", LONG),
            Field("boundaryType", TEXT, required=False),
        ),
        answer=(Field("offset", LONG),),
    ),
    Request(
        30,
        "GET_MAX_OFFSET",
        fields=(TOPIC, QUEUE_ID, Field("committed", BOOL, required=False)),
        answer=(Field("offset", LONG),),
    ),
    Request(31, "GET_MIN_OFFSET", fields=(TOPIC, QUEUE_ID), answer=(Field("offset", LONG),)),
    Request(
        32,
        "GET_EARLIEST_MSG_STORETIME",
        fields=(TOPIC, QUEUE_ID),
        answer=(Field("timestamp", LONG),),
    ),
    Request(
        33,
        "VIEW_MESSAGE_BY_ID",
        fields=(Field("topic", TEXT, required=False), Field("offset", LONG)),
        answer_body="the stored record",
    ),
    Request(
        34,
        "HEART_BEAT",
        answer=(Field("IS_SUPPORT_HEART_BEAT_V2", BOOL, required=False), Field("IS_SUB_CHANGE", BOOL, required=False)),
        body="HeartbeatData",
    ),
    Request(
        35,
        "UNREGISTER_CLIENT",
        fields=(
            Field("clientID", TEXT),
            Field("producerGroup", TEXT, required=False),
            Field("consumerGroup", TEXT, required=False),
        ),
    ),
    Request(
        36,
        "CONSUMER_SEND_MSG_BACK",
        fields=(
            Field("offset", LONG),
            GROUP,
            Field("delayLevel", INT),
            Field("originMsgId", TEXT, required=False),
            Field("originTopic", TEXT, required=False),
            Field("unitMode", BOOL, required=False),
            Field("maxReconsumeTimes", INT, required=False),
        ),
    ),
    Request(
        37,
        "END_TRANSACTION",
        fields=(
            Field("topic", TEXT, required=False),
            Field("producerGroup", TEXT),
            *HALF_PLACE,
            Field("commitOrRollback", INT),
            Field("fromTransactionCheck", BOOL, required=False),
            *TRANSACTION_IDS,
        ),
    ),
    Request(38, "GET_CONSUMER_LIST_BY_GROUP", fields=(CONSUMER_GROUP,), answer_body="consumerIdList"),
    Request(
        39,
        "CHECK_TRANSACTION_STATE",
        fields=(
            Field("topic", TEXT, required=False),
            *HALF_PLACE,
            *TRANSACTION_IDS,
            Field("offsetMsgId", TEXT, required=False),
            Field("bname", TEXT, required=False),
        ),
        body="the half message, as a stored record",
    ),
    Request(40, "NOTIFY_CONSUMER_IDS_CHANGED", fields=(CONSUMER_GROUP,)),
    Request(41, "LOCK_BATCH_MQ", body="consumerGroup, clientId, onlyThisBroker, mqSet", answer_body="lockOKMQSet"),
    Request(42, "UNLOCK_BATCH_MQ", body="as LOCK_BATCH_MQ"),
    Request(46, "CHECK_CLIENT_CONFIG", body="clientId, group, subscriptionData, namespace"),
    Request(
        50,
        "UPDATE_AND_CREATE_ACL_CONFIG",
        fields=(
            Field("accessKey", TEXT),
            Field("secretKey", TEXT, required=False),
            Field("whiteRemoteAddress", TEXT, required=False),
            Field("admin", BOOL, required=False),
            Field("defaultTopicPerm", TEXT, required=False),
            Field("defaultGroupPerm", TEXT, required=False),
            Field("topicPerms", TEXT, required=False),
            Field("groupPerms", TEXT, required=False),
        ),
    ),
    Request(51, "DELETE_ACL_CONFIG", fields=(Field("accessKey", TEXT),)),
    Request(
        52,
        "GET_BROKER_CLUSTER_ACL_INFO",
        answer=(
            Field("version", TEXT),
            Field("allAclFileVersion", TEXT),
            BROKER_NAME,
            Field("brokerAddr", TEXT),
            Field("clusterName", TEXT),
        ),
    ),
    Request(
        53,
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
        fields=(Field("globalWhiteAddrs", TEXT), Field("aclFileFullPath", TEXT, required=False)),
    ),
    Request(54, "GET_BROKER_CLUSTER_ACL_CONFIG", answer_body="globalWhiteAddrs, plainAccessConfigs"),
    Request(100, "PUT_KV_CONFIG", fields=(Field("namespace", TEXT), Field("key", TEXT), Field("value", TEXT))),
    Request(
        101,
        "GET_KV_CONFIG",
        fields=(Field("namespace", TEXT), Field("key", TEXT)),
        answer=(Field("value", TEXT, required=False),),
    ),
    Request(102, "DELETE_KV_CONFIG", fields=(Field("namespace", TEXT), Field("key", TEXT))),
    Request(
        103,
        "REGISTER_BROKER",
        fields=(
            BROKER_NAME,
            Field("brokerAddr", TEXT),
            Field("clusterName", TEXT),
            Field("haServerAddr", TEXT),
            Field("brokerId", LONG),
            Field("heartbeatTimeoutMillis", LONG, required=False),
            Field("enableActingMaster", BOOL, required=False),
            Field("compressed", BOOL, required=False),
            Field("bodyCrc32", INT, required=False),
        ),
        answer=REGISTERED,
        body="RegisterBrokerBody, possibly deflated",
        answer_body="KVTable of order topics",
    ),
    Request(
        104,
        "UNREGISTER_BROKER",
        fields=BROKER,
    ),
    Request(
        105,
        "GET_ROUTEINFO_BY_TOPIC",
        fields=(TOPIC, Field("acceptStandardJsonOnly", BOOL, required=False)),
        answer_body="TopicRouteData",
    ),
    Request(106, "GET_BROKER_CLUSTER_INFO", answer_body="ClusterInfo"),
    Request(205, "WIPE_WRITE_PERM_OF_BROKER", fields=(BROKER_NAME,), answer=(Field("wipeTopicCount", INT),)),
    Request(206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER", answer_body="TopicList"),
    Request(216, "DELETE_TOPIC_IN_NAMESRV", fields=(TOPIC, Field("clusterName", TEXT, required=False))),
    Request(217, "REGISTER_TOPIC_IN_NAMESRV", fields=(TOPIC,)),
    Request(219, "GET_KVLIST_BY_NAMESPACE", fields=(Field("namespace", TEXT),), answer_body="KVTable"),
    Request(224, "GET_TOPICS_BY_CLUSTER", fields=(Field("cluster", TEXT),), answer_body="TopicList"),
    Request(304, "GET_SYSTEM_TOPIC_LIST_FROM_NS", answer_body="TopicList"),
    Request(310, "SEND_MESSAGE_V2", fields=SEND, answer=SENT, short=True, body="the message's body"),
    Request(311, "GET_UNIT_TOPIC_LIST", answer_body="TopicList"),
    Request(312, "GET_HAS_UNIT_SUB_TOPIC_LIST", answer_body="TopicList"),
    Request(313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST", answer_body="TopicList"),
    Request(318, "UPDATE_NAMESRV_CONFIG", body="properties, a line each"),
    Request(319, "GET_NAMESRV_CONFIG", answer_body="properties, a line each"),
    Request(
        320,
        "SEND_BATCH_MESSAGE",
        fields=SEND,
        answer=SENT,
        short=True,
        body="messages: length, magic, CRC, flag, body, properties",
    ),
    Request(
        322,
        "QUERY_DATA_VERSION",
        fields=BROKER,
        answer=(Field("changed", BOOL),),
        body="DataVersion",
        answer_body="DataVersion",
    ),
    Request(323, "RESUME_CHECK_HALF_MESSAGE", fields=(Field("topic", TEXT, required=False), Field("msgId", TEXT))),
    Request(324, "SEND_REPLY_MESSAGE", fields=SEND, answer=SENT, body="the reply's body"),
    Request(325, "SEND_REPLY_MESSAGE_V2", fields=SEND, answer=SENT, short=True, body="the reply's body"),
    Request(326, "PUSH_REPLY_MESSAGE_TO_CLIENT", fields=PUSHED, body="the reply's body"),
    Request(327, "ADD_WRITE_PERM_OF_BROKER", fields=(BROKER_NAME,), answer=(Field("addTopicCount", INT),)),
    Request(
        400,
        "QUERY_ASSIGNMENT",
        body="topic, consumerGroup, clientId, strategyName, messageModel",
        answer_body="messageQueueAssignments",
    ),
    Request(361, "LITE_PULL_MESSAGE", fields=PULL, answer=PULLED, answer_body="the stored records"),
    Request(
        370,
        "RECALL_MESSAGE",
        fields=(Field("producerGroup", TEXT, required=False), TOPIC, Field("recallHandle", TEXT)),
        answer=(Field("msgId", TEXT),),
    ),
    Request(
        901,
        "GET_BROKER_MEMBER_GROUP",
        fields=(Field("clusterName", TEXT), BROKER_NAME),
        answer_body="BrokerMemberGroup",
    ),
    Request(
        904,
        "BROKER_HEARTBEAT",
        fields=(
            Field("clusterName", TEXT),
            Field("brokerAddr", TEXT),
            BROKER_NAME,
            Field("brokerId", LONG, required=False),
            Field("epoch", INT, required=False),
            Field("maxOffset", LONG, required=False),
            Field("confirmOffset", LONG, required=False),
            Field("heartbeatTimeoutMills", LONG, required=False),
            Field("electionPriority", INT, required=False),
        ),
    ),
)
REQUESTS = {request.code: request for request in (*_REQUESTS, *ADMIN_REQUESTS)}
CODES = {request.name: code for code, request in REQUESTS.items()}
