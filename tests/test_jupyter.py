"""The client in a kernel of Jupyter, whose event loop runs while a cell does: cells that await, and the notebook."""

import json
import subprocess
import sys

import pytest
from support.pages import ROOT
from support.servers import environment

pytestmark = pytest.mark.long

# Clients are open over several cells; `# %%` is between them.
CELLS = """\
import asyncio, queue
import rocketc
from rocketc.client import AsyncConsumer, AsyncProducer, AsyncPullConsumer, Producer, PushConsumer
assert asyncio.get_running_loop().is_running()
cluster = rocketc.Broker()
address = cluster.__enter__().name_server
producer, other = AsyncProducer("notebook", address), Producer("plain", address)
await producer.start()
other.start()
# %%
sent = await producer.send("cells", b"one")
other.send("cells", b"two", queue=sent.queue)
# %%
found = queue.Queue()
consumer = PushConsumer("listens", address, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
@consumer.subscribe("cells")
async def on_message(message):
    found.put(message.body)
consumer.start()
print("listened:", found.get(timeout=20), found.get(timeout=20))
# %%
first = "CONSUME_FROM_FIRST_OFFSET"
async with AsyncConsumer("reads", address, topics=["cells"], consume_from_where=first) as reader:
    async for message in reader:
        await reader.commit()
        print("read:", message.body)
        break
async with AsyncPullConsumer("polls", address) as puller:
    await puller.assign([sent.queue])
    await puller.seek_to_begin(sent.queue)
    print("polled:", [message.body for message in await puller.poll(20_000)])
# %%
consumer.close()
other.close()
await producer.close()
cluster.__exit__(None, None, None)
print("tasks:", [one for one in asyncio.all_tasks() if "/rocketc/" in repr(one)])
"""

# Runs cells in a kernel, and prints as JSON what each of them prints.
RUN = """
import json, sys
import nbclient, nbformat
cells = [nbformat.v4.new_code_cell(one) for one in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
printed = [[one["text"] for one in cell.outputs if one["output_type"] == "stream" and one["name"] == "stdout"]
           for cell in notebook.cells]
print(json.dumps(["".join(texts) for texts in printed]))
"""


def run(cells, folder):
    """Run cells in a kernel; return what each printed."""
    folders = {name: str(folder) for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    env = environment("nbclient", **folders)
    done = subprocess.run(
        [sys.executable, "-c", RUN], env=env, cwd=folder, input=json.dumps(cells), capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_cells_with_open_clients(tmp_path):
    assert run(CELLS.split("# %%\n"), tmp_path) == [
        "", "", "listened: b'one' b'two'\n", "read: b'one'\npolled: [b'one', b'two']\n", "tasks: []\n",
    ]  # fmt: skip


def test_the_notebook(tmp_path):
    stored = json.loads((ROOT / "examples/notebooks/client.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert len(run(cells, tmp_path)) == len(cells) > 5
