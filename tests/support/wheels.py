"""A wheel of the package under test, from its built modules: nothing is compiled."""

import importlib.metadata
from pathlib import Path

import packaging.tags
from wheel.wheelfile import WheelFile

import rocketc

LEAVE = {"__pycache__"}


def make_wheel(folder: Path) -> Path:
    """Write the wheel that `pip wheel` would build here into the folder; returns its path."""
    about = importlib.metadata.distribution("rocketc")
    tag = str(next(packaging.tags.sys_tags()))
    name = f"rocketc-{about.version}"
    path = folder / f"{name}-{tag}.whl"
    root = Path(rocketc.__file__).parents[1]
    files = [one for package in ("rocketc", "pyspark_rocketmq") for one in (root / package).rglob("*") if one.is_file()]
    with WheelFile(path, "w") as wheel:
        for one in sorted([*files, root / "rocketc_command.py", root / "pytest_rocketc.py"]):
            if LEAVE.isdisjoint(one.parts):
                wheel.write(one, one.relative_to(root).as_posix())
        for part in ("METADATA", "entry_points.txt", "top_level.txt"):
            wheel.writestr(f"{name}.dist-info/{part}", about.read_text(part) or "")
        lines = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: false", f"Tag: {tag}", ""]
        wheel.writestr(f"{name}.dist-info/WHEEL", "\n".join(lines))
    return path
