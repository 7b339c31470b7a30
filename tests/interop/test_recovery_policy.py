"""recovery="java" compared with RocketMQ: a damaged store is copied, RocketMQ opens one copy and rocketc the other.

Both logs must end at the same byte, with the same messages and the same queues.
"""

import io
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interop import ours
from interop.ledger import Told, of_size, plan
from interop.peer import PeerError
from interop.turns import CHECKSUMS, SETTINGS
from support import oracle
from support.promise_counts import count

import rocketc
from rocketc.config import StoreConfig
from rocketc.files import _checkpoint
from rocketc.files._checkpoint import Checkpoint

pytestmark = [pytest.mark.promise(5), pytest.mark.promise(9)]

SIZE = int(str(SETTINGS["mappedFileSizeCommitLog"]))
T0 = 1_700_000_000_000  # put n has the store timestamp T0 + 1000 n
MARGIN = 3000
ROUND = 12  # stores that are open in Java at once

Damage = Callable[["Made", oracle.Record], list[tuple[int, bytes]]]  # the new bytes, and their places


class Made:
    """A store with messages, closed."""

    def __init__(self, root: Path, planned: list[Told], settings: dict[str, object]) -> None:
        self.root, self.settings = root, {**SETTINGS, **settings}
        with ours.open_store(root, self.settings) as store:
            for n, item in enumerate(planned):
                store._set_clock(T0 + 1000 * n)
                list(ours.put(store, [item]))
        items = oracle.walk_log(oracle.read_log(root / "commitlog"))
        self.records, self.blanks = oracle.records(items), oracle.blanks(items)
        self.files = self.records[-1]["stop"] // SIZE + 1

    def read(self, at: int, length: int = 1) -> bytes:
        path = self.root / "commitlog" / f"{at - at % SIZE:020d}"
        return path.read_bytes()[at % SIZE :][:length]

    def flipped(self, at: int, bit: int) -> list[tuple[int, bytes]]:
        return [(at, bytes([self.read(at)[0] ^ 1 << bit]))]

    def first_in(self, file: int) -> oracle.Record:
        return next(m for m in self.records if m["start"] >= file * SIZE)

    def in_file(self, file: int) -> list[oracle.Record]:
        return [m for m in self.records if m["start"] // SIZE == file]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made") / "store", plan(7, 330), {})


# ---------------------------------------------------------------- damage
def at(field: str, m: oracle.Record) -> int:
    """Where a field of a record begins."""
    hosts = (20 if m["sysFlag"] & 0x10 else 8) + (20 if m["sysFlag"] & 0x20 else 8)
    body = 72 + hosts
    topic = body + len(m["storedBody"])
    fixed = {"size": 0, "magic": 4, "crc": 8, "queue id": 12, "queue offset": 20, "offset": 28, "flags": 36}
    late = {"stored": hosts - (20 if m["sysFlag"] & 0x20 else 8) + 48, "length": body - 4, "body": body, "topic": topic}
    return m["start"] + {**fixed, **late, "properties": topic + 1 + len(m["topic"].encode())}[field]


def flip(field: str, byte: int = 0, bit: int = 0) -> Damage:
    return lambda made, m: made.flipped(at(field, m) + byte, bit)


def blank_behind(made: Made, m: oracle.Record) -> oracle.Blank:
    return next((blank for blank in made.blanks if blank.stop > m["start"]), made.blanks[-1])


RECORD: dict[str, Damage] = {  # damage that RocketMQ's check of a record finds
    "size below 0": lambda _, m: [(m["start"], b"\xff")],
    "size": flip("size", 3, 4),
    "magic": flip("magic", 2, 3),
    "body": lambda made, m: made.flipped(at("body", m), 2) if m["storedBody"] else [(m["start"] + 4, b"lost")],
    "width of a host": flip("flags", 3, 4),
    "body length": flip("length", 3, 1),
    "topic length": flip("topic", 0, 1),
    "topic length below 0": flip("topic", 0, 7),
    "properties length": flip("properties", 1, 2),
    "second half zero": lambda _, m: [(m["start"] + m["storeSize"] // 2, bytes(m["storeSize"] - m["storeSize"] // 2))],
    "all zero": lambda _, m: [(m["start"], bytes(m["storeSize"]))],
    "zero to the end of the file": lambda _, m: [(m["start"], bytes(SIZE - m["start"] % SIZE))],
    "a sector zero": lambda _, m: [(m["start"] // 512 * 512, bytes(512))],
    "rubbish": lambda _, m: [(m["start"] + 10, random.Random(m["start"]).randbytes(60))],
}
FILE: dict[str, Damage] = {  # damage between the records
    "blank magic": lambda made, m: made.flipped(blank_behind(made, m).start + 6, 1),
    "blank size": lambda made, m: made.flipped(blank_behind(made, m).start + 3, 1),
    "blank zero": lambda made, m: [(blank_behind(made, m).start, bytes(8))],
    "a blank in the place of a record": lambda _, m: [(m["start"] + 4, bytes.fromhex("cbd43194"))],
    "a file of zeros": lambda _, m: [(m["start"] - m["start"] % SIZE, bytes(SIZE))],
}
UNSEEN: dict[str, Damage] = {  # damage that RocketMQ does not check
    "stored offset": flip("offset", 6, 1),
    "store timestamp": flip("stored", 7, 2),
    "nothing": lambda _, __: [],
}
KINDS = {**RECORD, **FILE, **UNSEEN}
STATES = ["clean", "no checkpoint", "early", "late"]


def lay(made: Made, root: Path, damage: list[tuple[int, bytes]], state: str) -> Path:
    """Copy a store, change bytes in its log, and leave it in a state: closed, without a checkpoint, or with one."""
    shutil.copytree(made.root, root)
    for start, data in damage:
        with open(root / "commitlog" / f"{start - start % SIZE:020d}", "r+b") as file:
            file.seek(start % SIZE)
            file.write(data)
    if state != "clean":
        (root / "abort").touch()
    if state == "no checkpoint":
        (root / "checkpoint").unlink()
    elif state in ("early", "late"):
        time = made.first_in(1 if state == "early" else made.files - 2)["storeTimestamp"] + MARGIN
        _checkpoint.write(str(root / "checkpoint"), Checkpoint(time, time, 0, 0, 0))
    return root


# ---------------------------------------------------------------- the comparison
def open_as_java(root: Path, settings: dict[str, object]) -> rocketc.MessageStore:
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = StoreConfig.from_properties(io.StringIO(text))
    return rocketc.open(root, config=config, recovery="java")


def ours_of(root: Path, settings: dict[str, object]) -> dict[str, Any]:
    """The end of the log, the bounds of its queues, and its messages, after rocketc has opened the store."""
    with open_as_java(root, settings) as store:
        bounds = {(topic, q): (store.min_offset(topic, q), store.max_offset(topic, q)) for topic, q in store.queues()}
        return {
            "max": store.max_phy_offset,
            "queues": bounds,
            "messages": [m["physicalOffset"] for m in ours.scan(root)],
        }


def differences(peer, root: Path, theirs: Told, mine: dict[str, Any], hit: list[oracle.Record]) -> dict[str, Any]:
    """What differs. hit: the damaged records; queues of those that stay in the log are not compared."""
    if theirs["max"] != mine["max"]:
        return {"end": (theirs["max"], mine["max"])}
    spared = {(m["topic"], m["queueId"]) for m in hit if m["start"] < mine["max"]}
    asked = [where for where in sorted(mine["queues"]) if where not in spared]
    question = {"kind": "getMessage", "offset": 0, "maxMsgNums": 1, "tags": None}
    answers = peer.answers(root, [{**question, "topic": topic, "queueId": q} for topic, q in asked])
    told = {where: (a["minOffset"], a["maxOffset"]) for where, a in zip(asked, answers, strict=True)}
    wrong = {where: (told[where], mine["queues"][where]) for where in asked if told[where] != mine["queues"][where]}
    lost = [offset for offset, m in zip(mine["messages"], peer.look(root, mine["messages"]), strict=True) if m is None]
    return {name: found for name, found in {"queues": wrong, "lost": lost}.items() if found}


def compare(peer, made: Made, folder: Path, cases: list[tuple[str, oracle.Record, str]]) -> None:
    """Each case: a kind of damage, the record that it hits, and the state of the store."""
    for k in range(0, len(cases), ROUND):
        opened = []
        for n, (kind, m, state) in enumerate(cases[k : k + ROUND]):
            damage = KINDS[kind](made, m)
            theirs, mine = (lay(made, folder / f"{k + n}{who}", damage, state) for who in "jr")
            says = f"{kind} in {m['start']}, {state}"
            try:
                told = peer.open(theirs, made.settings)
            except PeerError as error:
                # 4.9.7 allocates the number of bytes that the size field says
                assert peer.release == "4.9.7" and kind == "size" and "OutOfMemoryError" in str(error), says
                continue
            opened.append(theirs)
            hit = [
                one
                for one in made.records
                for start, data in damage
                if one["start"] < start + len(data) and start < one["stop"]
            ]
            wrong = differences(peer, theirs, told, ours_of(mine, made.settings), hit)
            assert not wrong, f"RocketMQ {peer.release}: {says}: {wrong}"
        peer.close(*opened)
        count("damaged", len(opened))
        for path in folder.iterdir():
            shutil.rmtree(path)


def drawn(made: Made, seed: int, each: int) -> list[tuple[str, oracle.Record, str]]:
    """`each` cases of a kind: first, middle and last records of first, middle and last files, in all states."""
    chance = random.Random(seed)

    def one() -> oracle.Record:
        inside = made.in_file(chance.choice([0, 1, made.files // 2, made.files - 2, made.files - 1]))
        return chance.choice([inside[0], inside[len(inside) // 2], inside[-1], chance.choice(inside)])

    return [(kind, one(), chance.choice(STATES)) for kind in KINDS for _ in range(each)]


def third_last(made: Made, case: tuple[str, oracle.Record, str]) -> bool:
    """After a clean shutdown 4.9.7 starts at the third last file, 5.3.3 and rocketc at the file where queues end."""
    kind, m, state = case
    hit = {start // SIZE for start, _ in KINDS[kind](made, m)}
    return state == "clean" and bool(hit & {made.files - 3, made.files - 2})


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])
def test_random_damage(peer, made, tmp_path, seed):
    cases = drawn(made, seed, 1 if seed == 0 else 4)
    if peer.release == "4.9.7":
        cases = [case for case in cases if not third_last(made, case)]
    if seed == 0:
        cases = random.Random(peer.release).sample(cases, 4)
    print(f"seed {seed}")
    compare(peer, made, tmp_path, cases)


@pytest.mark.long
@pytest.mark.parametrize("state", ["clean", "early"])
@pytest.mark.parametrize("kind", [*RECORD, *FILE])
def test_each_damage_in_each_file(peer, made, tmp_path, kind, state):
    """For the first, a middle and the last record of every file."""
    places = [made.in_file(file) for file in range(made.files)]
    cases = [(kind, m, state) for inside in places for m in (inside[0], inside[len(inside) // 2], inside[-1])]
    if peer.release == "4.9.7":
        cases = [case for case in cases if not third_last(made, case)]
    compare(peer, made, tmp_path, cases)


@pytest.mark.long
def test_after_a_clean_shutdown_4x_checks_more_files(peers, made, tmp_path):
    """The one difference: damage in the two files before the last, whose messages are all in the queues."""
    m = made.in_file(made.files - 2)[3]
    damage = RECORD["magic"](made, m)
    ends = {}
    for release in ("4.9.7", "5.3.3"):
        root = lay(made, tmp_path / release, damage, "clean")
        ends[release] = peers(release).open(root, made.settings)["max"]
        peers(release).close(root)
    ends["rocketc"] = ours_of(lay(made, tmp_path / "ours", damage, "clean"), made.settings)["max"]
    whole = made.records[-1]["stop"]
    assert ends == {"4.9.7": m["start"], "5.3.3": whole, "rocketc": whole}


def both_ends(peer, made: Made, theirs: Path, mine: Path) -> tuple[int, int]:
    """Where RocketMQ ends the log of one store, and rocketc that of the other."""
    told = peer.open(theirs, made.settings)
    peer.close(theirs)
    count("damaged")
    return told["max"], ours_of(mine, made.settings)["max"]


# ---------------------------------------------------------------- properties of rare records
def small(body: bytes = b"hello", topic: str = "a", **properties: str) -> Told:
    return {**of_size(300, topic), "body": body, "properties": properties}


ODD = [
    *(small() for _ in range(9)),
    small(topic="SCHEDULE_TOPIC_XXXX", DELAY="3"),
    small(XNNER_NUM="5", XNNER_BASE="7"),
    small(b""),
    *(small() for _ in range(9)),
]
DELAYED, INNER, EMPTY = 9, 10, 11


def replaced(made: Made, number: int, pairs: dict[bytes, bytes]) -> list[tuple[int, bytes]]:
    m = made.records[number]
    data = made.read(m["start"], m["storeSize"])
    for old, new in pairs.items():
        assert data.count(old) == 1 and len(old) == len(new)
        data = data.replace(old, new)
    return [(m["start"], data)]


ODDITIES: dict[str, tuple[int, dict[bytes, bytes]]] = {
    "a delay that is not a number": (DELAYED, {b"DELAY\x013": b"DELAY\x01q"}),
    "an inner batch": (INNER, {b"XNNER_NUM": b"INNER_NUM", b"XNNER_BASE": b"INNER_BASE"}),
    "a count that is not a number": (INNER, {b"XNNER_NUM\x015": b"INNER_NUM\x01q", b"XNNER_BASE": b"INNER_BASE"}),
    "a base that is not a number": (INNER, {b"XNNER_NUM": b"INNER_NUM", b"XNNER_BASE\x017": b"INNER_BASE\x01q"}),
    "a count without a base": (INNER, {b"XNNER_NUM\x015": b"INNER_NUM\x01q"}),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_odd_records(peers, tmp_path, release):
    """Properties that are parsed as numbers, negative lengths of empty fields, a CRC of an empty body."""
    peer, made = peers(release), Made(tmp_path / "made", ODD, {})
    empty = made.records[EMPTY]
    cases = {name: replaced(made, *what) for name, what in ODDITIES.items()}
    cases |= {
        "a body's length below 0": made.flipped(at("length", empty), 7),
        "a CRC of an empty body": made.flipped(empty["start"] + 9, 2),
        "a properties' length below 0": made.flipped(at("properties", empty), 7),
    }
    ends = {}
    for name, damage in cases.items():
        roots = (lay(made, tmp_path / f"{len(ends)}{who}", damage, "no checkpoint") for who in "jr")
        ends[name] = both_ends(peer, made, *roots)
    if release == "4.9.7":  # it does not know inner batches
        for name in ("a count that is not a number", "a base that is not a number"):
            assert ends.pop(name) == (made.records[-1]["stop"], made.records[INNER]["start"])
    assert all(one == other for one, other in ends.values()), ends
    assert len({*ends.values()}) > 1


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [CHECKSUMS, {"forceVerifyPropCRC": "true"}, {"checkCRCOnRecover": "false"}], ids=str
)
def test_checksums(peers, tmp_path, settings):
    """5.3.3's checksum of the whole record, and no checksum at all."""
    peer, made = peers("5.3.3"), Made(tmp_path / "made", [small(b"x" * 200) for _ in range(30)], settings)
    m = made.records[20]
    places = {"flag": m["start"] + 17, "body": at("body", m), "crc": m["start"] + 9}
    if settings == CHECKSUMS:
        places |= {"name": m["stop"] - 18, "digits": m["stop"] - 4, "end": m["stop"] - 1}
    ends = {}
    for name, where in {**places, "nothing": None}.items():
        damage = made.flipped(where, 1) if where is not None else []
        roots = (lay(made, tmp_path / f"{name}{who}", damage, "no checkpoint") for who in "jr")
        ends[name] = both_ends(peer, made, *roots)
    assert all(one == other for one, other in ends.values()), ends


@pytest.mark.long
@pytest.mark.parametrize("safe", [False, True], ids=["", "index safe"])
def test_where_recovery_begins(peer, tmp_path, safe):
    """Where recovery begins, to the millisecond, by each of the checkpoint's times; ends of the log without damage."""
    settings: dict[str, object] = {"messageIndexSafe": str(safe).lower()}
    planned = [{**of_size(3000), "body": bytes(2900), "properties": {"KEYS": f"k{n}"}} for n in range(200)]
    made = Made(tmp_path / "made", planned, settings)
    damage = made.flipped(at("body", made.in_file(4)[3]), 0)
    said = [made.first_in(file)["storeTimestamp"] + MARGIN for file in range(7)]
    ends: dict[object, tuple[int, int]] = {}
    for times in [
        *((said[n] + more, said[n] + more, said[n] + more) for n in (4, 5) for more in (-1, 0, 1)),
        *((said[6], said[5], said[2]), (said[2], said[5], said[5]), (said[5], said[2], said[5]), (said[5], said[5], 0)),
    ]:
        roots = [lay(made, tmp_path / f"{len(ends)}{who}", damage, "early") for who in "jr"]
        for root in roots:
            _checkpoint.write(str(root / "checkpoint"), Checkpoint(*times, 0, 0))
        ends[times] = both_ends(peer, made, *roots)
    for name, change in {
        "a file that is missing": lambda log: log[2].unlink(),
        "no file after the blank record": lambda log: [path.unlink() for path in log[4:]],
        "an empty file after it": lambda log: [*(path.unlink() for path in log[5:]), log[4].write_bytes(bytes(SIZE))],
        "no record at all": lambda log: [*(path.unlink() for path in log[1:]), log[0].write_bytes(bytes(SIZE))],
    }.items():
        for state in ("clean", "no checkpoint"):
            roots = [lay(made, tmp_path / f"{len(ends)}{who}", [], state) for who in "jr"]
            for root in roots:
                change(sorted((root / "commitlog").iterdir()))
            ends[name, state] = both_ends(peer, made, *roots)
    assert all(one == other for one, other in ends.values()), ends
    assert len({*ends.values()}) > 4
