"""The rows of the table of requests that tools send to a broker; `requests` has the whole table.

Source: RocketMQ RequestCode, remoting/protocol/header, as of 5.3.3.
"""

from __future__ import annotations

from rocketc.remoting.request_types import BOOL, CONSUMER_GROUP, GROUP, INT, LONG, QUEUE_ID, TEXT, TOPIC, Field, Request

RESET = (
    TOPIC,
    GROUP,
    Field("queueId", INT, required=False),
    Field("offset", LONG, required=False),
    Field("timestamp", LONG),
    Field("isForce", BOOL, required=False),
)
RELAYED = (
    CONSUMER_GROUP,
    Field("clientId", TEXT, required=False),
    Field("msgId", TEXT, required=False),
    Field("brokerName", TEXT, required=False),
    Field("topic", TEXT, required=False),
    Field("topicSysFlag", INT, required=False),
    Field("groupSysFlag", INT, required=False),
)

ADMIN_REQUESTS = (
    Request(
        17,
        "UPDATE_AND_CREATE_TOPIC",
        fields=(
            TOPIC,
            Field("defaultTopic", TEXT, required=False),
            Field("readQueueNums", INT),
            Field("writeQueueNums", INT),
            Field("perm", INT),
            Field("topicFilterType", TEXT),
            Field("topicSysFlag", INT, required=False),
            Field("order", BOOL, required=False),
            Field("attributes", TEXT, required=False),
            Field("force", BOOL, required=False),
        ),
    ),
    Request(18, "UPDATE_AND_CREATE_TOPIC_LIST", body="topicConfigList"),
    Request(21, "GET_ALL_TOPIC_CONFIG", answer_body="topicConfigTable, dataVersion"),
    Request(25, "UPDATE_BROKER_CONFIG", body="properties, a line each"),
    Request(26, "GET_BROKER_CONFIG", answer=(Field("version", TEXT),), answer_body="properties, a line each"),
    Request(43, "GET_ALL_CONSUMER_OFFSET", answer_body="offsetTable, dataVersion"),
    Request(45, "GET_ALL_DELAY_OFFSET", answer_body="offsetTable, dataVersion"),
    Request(60, "GET_TIMER_CHECK_POINT", answer_body="the fields of timercheck"),
    Request(61, "GET_TIMER_METRICS", answer_body="timingCount, dataVersion"),
    Request(200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", body="SubscriptionGroupConfig"),
    Request(201, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", answer_body="subscriptionGroupTable, dataVersion"),
    Request(202, "GET_TOPIC_STATS_INFO", fields=(TOPIC,), answer_body="TopicStatsTable"),
    Request(203, "GET_CONSUMER_CONNECTION_LIST", fields=(CONSUMER_GROUP,), answer_body="ConsumerConnection"),
    Request(
        204, "GET_PRODUCER_CONNECTION_LIST", fields=(Field("producerGroup", TEXT),), answer_body="ProducerConnection"
    ),
    Request(
        207,
        "DELETE_SUBSCRIPTIONGROUP",
        fields=(
            Field("groupName", TEXT),
            Field("cleanOffset", BOOL, required=False),
            Field("removeOffset", BOOL, required=False),  # its name in tools of 4.9
        ),
    ),
    Request(
        208,
        "GET_CONSUME_STATS",
        fields=(CONSUMER_GROUP, Field("topic", TEXT, required=False), Field("topicList", TEXT, required=False)),
        answer_body="ConsumeStats",
    ),
    Request(215, "DELETE_TOPIC_IN_BROKER", fields=(Field("topic", TEXT, required=False),)),
    Request(220, "RESET_CONSUMER_CLIENT_OFFSET", fields=RESET, body="ResetOffsetBody"),
    Request(221, "GET_CONSUMER_STATUS_FROM_CLIENT", fields=(TOPIC, GROUP), answer_body="messageQueueTable"),
    Request(222, "INVOKE_BROKER_TO_RESET_OFFSET", fields=RESET, answer_body="ResetOffsetBody"),
    Request(
        223,
        "INVOKE_BROKER_TO_GET_CONSUMER_STATUS",
        fields=(TOPIC, GROUP, Field("clientAddr", TEXT, required=False)),
        answer_body="consumerTable",
    ),
    Request(225, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST", body="groupConfigList"),
    Request(300, "QUERY_TOPIC_CONSUME_BY_WHO", fields=(TOPIC,), answer_body="GroupList"),
    Request(303, "QUERY_CONSUME_TIME_SPAN", fields=(TOPIC, GROUP), answer_body="consumeTimeSpanSet"),
    Request(305, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER", answer_body="TopicList"),
    Request(306, "CLEAN_EXPIRED_CONSUMEQUEUE"),
    Request(
        307,
        "GET_CONSUMER_RUNNING_INFO",
        fields=(CONSUMER_GROUP, Field("clientId", TEXT), Field("jstackEnable", BOOL, required=False)),
        answer_body="ConsumerRunningInfo",
    ),
    Request(
        308,
        "QUERY_CORRECTION_OFFSET",
        fields=(Field("filterGroups", TEXT, required=False), Field("compareGroup", TEXT), TOPIC),
        answer_body="correctionOffsets",
    ),
    Request(
        309,
        "CONSUME_MESSAGE_DIRECTLY",
        fields=RELAYED,
        body="to a client: the stored record",
        answer_body="ConsumeMessageDirectlyResult",
    ),
    Request(
        314,
        "CLONE_GROUP_OFFSET",
        fields=(
            Field("srcGroup", TEXT),
            Field("destGroup", TEXT),
            Field("topic", TEXT, required=False),
            Field("offline", BOOL, required=False),
        ),
    ),
    Request(
        315,
        "VIEW_BROKER_STATS_DATA",
        fields=(Field("statsName", TEXT), Field("statsKey", TEXT)),
        answer_body="BrokerStatsData",
    ),
    Request(316, "CLEAN_UNUSED_TOPIC"),
    Request(
        317,
        "GET_BROKER_CONSUME_STATS",
        fields=(Field("isOrder", BOOL, required=False),),
        answer_body="ConsumeStatsList",
    ),
    Request(
        321,
        "QUERY_CONSUME_QUEUE",
        fields=(
            TOPIC,
            QUEUE_ID,
            Field("index", LONG),
            Field("count", INT),
            Field("consumerGroup", TEXT, required=False),
        ),
        answer_body="QueryConsumeQueueResponseBody",
    ),
    Request(328, "GET_ALL_PRODUCER_INFO", answer_body="ProducerTableInfo"),
    Request(329, "DELETE_EXPIRED_COMMITLOG"),
    Request(343, "QUERY_TOPICS_BY_CONSUMER", fields=(GROUP,), answer_body="TopicList"),
    Request(
        345,
        "QUERY_SUBSCRIPTION_BY_CONSUMER",
        fields=(GROUP, TOPIC),
        answer_body="group, topic, subscriptionData",
    ),
    Request(351, "GET_TOPIC_CONFIG", fields=(TOPIC,), answer_body="TopicConfig"),
    Request(352, "GET_SUBSCRIPTIONGROUP_CONFIG", fields=(GROUP,), answer_body="SubscriptionGroupConfig"),
    Request(
        353,
        "UPDATE_AND_GET_GROUP_FORBIDDEN",
        fields=(GROUP, TOPIC, Field("readable", BOOL, required=False)),
        answer_body="group, topic, readable",
    ),
    Request(402, "GET_ALL_MESSAGE_REQUEST_MODE", answer_body="messageRequestModeMap"),
    Request(907, "GET_BROKER_HA_STATUS", answer_body="HARuntimeInfo"),
    Request(2003, "GET_COLD_DATA_FLOW_CTR_INFO", answer_body="cold data table"),
)
