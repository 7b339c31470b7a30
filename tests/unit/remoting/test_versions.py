"""Names of releases, with ordinals that MQVersion of 5.3.3 printed."""

import pytest

from rocketc.remoting.versions import version_name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [(194, "V3_9_1_SNAPSHOT"), (211, "V3_9_9"), (212, "V4_0_0_SNAPSHOT"), (213, "V4_0_0"), (227, "V4_0_7"),
     (253, "V4_2_0"), (399, "V4_9_3"), (401, "V4_9_4"), (411, "V4_9_9"), (413, "V5_0_0"), (475, "V5_3_1"),
     (479, "V5_3_3"), (611, "V5_9_9")],
)  # fmt: skip
def test_names_of_mq_version(ordinal, name):
    assert version_name(ordinal) == name


@pytest.mark.parametrize("ordinal", [-1, 0, 121, 193, 612, 1 << 31])
def test_other_numbers_are_shown_as_they_are(ordinal):
    assert version_name(ordinal) == str(ordinal)
