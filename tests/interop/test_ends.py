"""A log file ends in the same way whichever side ends it, for any number of bytes left and whichever side continues."""

import pytest
from interop.ledger import Told, of_size
from interop.turns import SETTINGS, Turns

pytestmark = pytest.mark.promise(1, 9)

SIZE = int(str(SETTINGS["mappedFileSizeCommitLog"]))
LEAST = 8  # bytes of a blank record: at least this number stays free after the last message
CHECKSUM = 20  # bytes of the property, which 4.x does not know


def files(lefts: list[int]) -> list[Told]:
    """One file for each number: messages that leave this number of bytes in it, then one that needs a whole file."""
    planned = []
    for left in lefts:
        planned += [of_size(200), of_size(SIZE - left - 200)]
    return [*planned, of_size(SIZE - LEAST)]


@pytest.mark.parametrize(("release", "checksum"), [("4.9.7", 0), ("5.3.3", 0), ("5.3.3", CHECKSUM)])
def test_last_bytes_of_files(peers, tmp_path, release, checksum):
    peer, turns = peers(release), Turns(tmp_path / "store", {"enabledAppendPropCRC": str(checksum > 0).lower()})
    planned = files([8, 9, 12, 20, 91, 92, 199 + LEAST])
    for item in planned:
        item["body"] = item["body"][checksum:]
    turns.rocketc_puts(planned)
    turns.rocketmq_puts(peer, planned)
    turns.rocketc_puts(planned)
    turns.rocketmq_puts(peer, planned)
    assert len(list((turns.root / "commitlog").iterdir())) >= 4 * (len(planned) + 1) // 2
    starts = [message["physicalOffset"] % SIZE for message in turns.ledger.messages]
    assert starts == 4 * [0 if n % 2 == 0 else 200 for n in range(len(planned))]
