"""The names of RocketMQ's releases. Headers and heartbeats have the ordinal of the release, as MQVersion counts them.

Source: RocketMQ MQVersion, as 5.3.3 prints it.
"""

from __future__ import annotations

V5_0_0 = 413  # POP, timed messages and requests about a single topic came with it

_FIRST, _LAST = 194, 611  # V3_9_1_SNAPSHOT to V5_9_9: ten numbers a step, each as a snapshot and as a release
_BEFORE = 588  # what the names before V3_9_1 are short of that


def version_name(ordinal: int) -> str:
    """Return the name of a release; the ordinal itself for one before 3.9.1, or after 5.9.9.

    >>> version_name(479), version_name(253), version_name(232), version_name(28)
    ('V5_3_3', 'V4_2_0', 'V4_1_0_SNAPSHOT', '28')
    """
    if not _FIRST <= ordinal <= _LAST:
        return str(ordinal)
    number, is_release = divmod(ordinal + _BEFORE, 2)
    return f"V{number // 100}_{number // 10 % 10}_{number % 10}{'' if is_release else '_SNAPSHOT'}"
