"""Answers that wait for a flush, with a real store."""

import asyncio
import os

import rocketc
from rocketc.broker.flush_waits import FlushWaits
from rocketc.remoting.codes import Code


def test_after_the_end_nothing_waits_and_nothing_is_written_to_the_descriptor(tmp_path):
    """The number of the descriptor may be that of another file by then."""

    async def main():
        with rocketc.open(tmp_path, flush="sync", background=False, mapped_file_size_commit_log=1 << 20) as store:
            waits, done = FlushWaits(store, 5.0), []
            fd = waits._write
            waits.close()
            path = tmp_path / "other"
            other = os.open(path, os.O_RDWR | os.O_CREAT)
            os.dup2(other, fd)
            put = store.put_async("orders", b"body")
            waits.add(store.max_phy_offset, done.append)
            await asyncio.sleep(0)
            assert done == [Code.FLUSH_DISK_TIMEOUT] and len(waits) == 0
            while store.step():
                pass
            assert put.done() and path.read_bytes() == b""
            for one in {other, fd}:
                os.close(one)
            waits.close()

    asyncio.run(main())
