"""A staged master for the tests of its parts."""

import pytest
from simulation import virtual
from unit.ha.staged_master import FILE_SIZE, Stage

import rocketc
from rocketc.ha.master import MasterSettings


@pytest.fixture
def play(tmp_path):
    """Run main(stage) on a virtual loop. `store` are fields of the store, the others MasterSettings."""

    def run(main, store=None, **settings):
        async def inner():
            fields = {"mapped_file_size_commit_log": FILE_SIZE, **(store or {})}
            with rocketc.open(tmp_path, background=False, clock=lambda: 1, **fields) as opened:
                stage = Stage(opened, MasterSettings(**settings))
                try:
                    await main(stage)
                finally:
                    await stage.master.close()
                assert stage.master.connections == {} and len(stage.master.replicas) == 0

        virtual.run(inner())

    return run
