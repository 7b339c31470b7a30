# cython: language_level=3
"""What a broker counts of the transactions of each topic.

Source: RocketMQ TransactionMetrics, BrokerMetricsManager; the bounds were seen on 5.3.3.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

cdef double[LATENCIES - 1] UPTO
UPTO = [5, 60, 600, 3600, 12 * 3600, 24 * 3600]

LATENCY_BOUNDS = tuple(int(bound) for bound in UPTO)    # seconds


cdef class TopicTransactions:
    """Counts the transactions of a topic. One thread counts and reads; there is no lock.

    committed, rolled_back  only increase
    seconds  from the birth of each message to its commit, of all commits together

    >>> one = TopicTransactions("orders")
    >>> one.prepare(), one.prepare(), one.commit(7.5)
    (None, None, None)
    >>> one.committed, one.latency(), one.seconds, one.take_opened(), one.take_opened()
    (1, [0, 1, 0, 0, 0, 0, 0], 7.5, 1, None)
    """

    def __init__(self, str topic not None):
        self.topic = topic
        self._name = topic.encode()

    cpdef void prepare(self) noexcept:
        """A half message is stored."""
        self._opened += 1
        self._is_changed = True

    cpdef void commit(self, double seconds) noexcept:
        """A transaction is committed, `seconds` after its message was born."""
        cdef int i = 0
        while i < LATENCIES - 1 and UPTO[i] < seconds:
            i += 1
        self._latency[i] += 1
        self.seconds += seconds
        self.committed += 1
        self._opened -= 1
        self._is_changed = True

    cpdef void roll_back(self) noexcept:
        """A transaction is rolled back."""
        self.rolled_back += 1
        self._opened -= 1
        self._is_changed = True

    cpdef void give_up(self) noexcept:
        """A transaction is given up."""
        self._opened -= 1
        self._is_changed = True

    def latency(self):
        """Return how many commits took up to each of LATENCY_BOUNDS and longer than the one before, and longer.

        >>> sum(TopicTransactions("orders").latency())
        0
        """
        cdef int i
        return [self._latency[i] for i in range(LATENCIES)]

    def take_opened(self):
        """Return the change of the number of open transactions since the last call; None if nothing happened.

        >>> TopicTransactions("orders").take_opened() is None
        True
        """
        if not self._is_changed:
            return None
        opened, self._opened, self._is_changed = self._opened, 0, False
        return opened


cdef class TransactionCounters:
    """The counters of all topics.

    >>> counters = TransactionCounters()
    >>> counters.of("orders") is counters.of("orders"), [one.topic for one in counters.all()]
    (True, ['orders'])
    """

    def __cinit__(self, *arguments, **named):
        self._topics = {}

    def of(self, str topic not None):
        """Return the counters of a topic.

        >>> TransactionCounters().of("orders").committed
        0
        """
        cdef bytes name = topic.encode()
        return self.at(<const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))

    def all(self):
        """Return the counters of all topics, in the order in which they came.

        >>> TransactionCounters().all()
        []
        """
        return list(self._topics.values())

    cdef TopicTransactions at(self, const uint8_t* topic, Py_ssize_t n):
        """Return the counters of a topic by its name, n bytes. Raises UnicodeDecodeError."""
        cdef TopicTransactions one = self._last
        cdef PyObject* known
        if one is not None and PyBytes_GET_SIZE(one._name) == n:
            if memcmp(PyBytes_AS_STRING(one._name), topic, <size_t>n) == 0:
                return one
        name = PyBytes_FromStringAndSize(<const char*>topic, n)
        known = PyDict_GetItem(self._topics, name)
        if known != NULL:
            one = <TopicTransactions>known
        else:
            one = self._topics[name] = TopicTransactions(name.decode())
        self._last = one
        return one
