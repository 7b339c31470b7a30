"""Write tests/golden/interop-5.3.3.jsonl: what RocketMQ's clients see at RocketMQ's own broker.

    tools/record_interop.py [--client RELEASE ...] [--against ADDRESS] [--check] [--differences] [SCENARIO ...]

Needs Java, Maven and Go. Each line has a release of the clients, a scenario of tests/interop/java/Clients.java and its
outcome at a broker of 5.3.3. All scenarios, or the named ones, run twice. If outcomes differ, the tool
prints them and does not write the file. Outcomes of other scenarios stay in the file.
--against A    play at the cluster of this name server, print what differs from the file, write nothing
--check        compare with the file, write nothing
--differences  print what a broker of 4.9.7 does differently
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from interop.peer import RELEASES  # noqa: E402
from interop.scenarios import GO, RECORDED, Clients, JavaCluster, difference, play_go, recorded  # noqa: E402


def play(client: str, broker: str, names: list[str]) -> dict[str, Any]:
    """Play the scenarios, or all of them, on a new cluster; return their outcomes by name."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = JavaCluster(broker, Path(folder, "cluster"))
        try:
            return play_at(cluster.name_server, client, names, f"broker {broker}")
        finally:
            cluster.close()


def play_at(name_server: str, client: str, names: list[str], where: str) -> dict[str, Any]:
    """Play the scenarios on the cluster of a name server."""
    if client == GO:
        return {"all": play_go(name_server)}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        clients = Clients(client, Path(folder))
        try:
            found = {}
            for name, seconds, outcome in clients.run(names or clients.names(), name_server):
                print(f"client {client}, {where}: {name}, {seconds:.1f} s", file=sys.stderr)
                found[name] = outcome
            return dict(sorted(found.items()))
        finally:
            clients.close()


def compare(title: str, first: dict[str, Any], second: dict[str, Any]) -> int:
    """Print what differs; return the number of scenarios that do."""
    count = 0
    for name in first:
        lines = difference(first[name], second.get(name))
        if lines:
            count += 1
            print(f"## {title}: {name}\n{lines}\n")
    return count


def write(made: dict[str, dict[str, Any]], *, keep: bool) -> None:
    """Write the file; keep: the outcomes in it stay, unless they are in `made`."""
    lines = []
    for client in [*RELEASES, GO]:
        outcomes = {**(recorded().get(client, {}) if keep or client not in made else {}), **made.get(client, {})}
        for name, outcome in sorted(outcomes.items()):
            entry = {"client": client, "scenario": name, "outcome": outcome}
            lines.append(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
    RECORDED.write_text("".join(lines), encoding="utf-8")
    print(f"{RECORDED.relative_to(ROOT)}: {len(lines)} outcomes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", nargs="+", default=[*RELEASES, GO])
    parser.add_argument("--against", metavar="ADDRESS")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--differences", action="store_true")
    parser.add_argument("names", nargs="*", metavar="SCENARIO")
    options = parser.parse_args()
    made, bad = {}, 0
    for client in options.client:
        if options.against:
            found = play_at(options.against, client, options.names, options.against)
            bad += compare(f"client {client}", {name: recorded()[client].get(name) for name in found}, found)
            continue
        outcomes = play(client, "5.3.3", options.names)
        if options.differences:
            compare(f"client {client}", outcomes, play(client, "4.9.7", options.names))
        elif options.check:
            bad += compare(f"client {client}", {name: recorded()[client].get(name) for name in outcomes}, outcomes)
        else:
            bad += compare(f"client {client}, two runs", outcomes, play(client, "5.3.3", options.names))
            bad += sum("failed" in outcome for outcome in outcomes.values() if isinstance(outcome, dict))
            made[client] = outcomes
    if made and not bad:
        write(made, keep=bool(options.names))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
