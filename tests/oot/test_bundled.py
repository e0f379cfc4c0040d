"""Each bundled plugin, built outside the checkout from what is installed, is that of the tree."""

import json
import secrets
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oot.fresh import PLUGINS, ROOT, Fresh, ask_python, distribution_name

pytestmark = pytest.mark.timeout(5400)
RECORDING = Path(__file__).with_name("recording.py")
NATIVE = ("radiance", "radiance-libavx")
FOLDERS = (ROOT, ROOT / "abi", *(ROOT / "plugins" / name for name in PLUGINS))
RECORDED = (
    "libavx gemm_nt_q ",
    "libavx gemm_nt ",
    "libavx attn_paged ",
    "libavx rope ",
    "libavx rmsnorm ",
    "libavx sample_draw ",
    "libref attn_paged ",
)
"""Rows without which the recording would say little."""


@pytest.mark.parametrize("name", [distribution_name(f) for f in FOLDERS])
def test_a_wheel_fits_every_python_and_only_native_ones_name_a_platform(
    fresh: Fresh, name: str
) -> None:
    """A wheel is py3-none-<platform> when it carries machine code, else py3-none-any."""
    platform = "linux_x86_64" if name in NATIVE else "any"
    assert fresh.built(name).name.endswith(f"-py3-none-{platform}.whl")
    with zipfile.ZipFile(fresh.built(name)) as wheel:
        objects = [f for f in wheel.namelist() if f.endswith(".so")]
        assert bool(objects) == (name in NATIVE)
        assert not [f for f in wheel.namelist() if f.endswith((".c", ".cpp", ".pyc"))]


def test_the_page_for_people_is_in_the_wheel(fresh: Fresh) -> None:
    """Every file that the server sends to browsers is shipped, byte for byte."""
    folder = ROOT / "src" / "radiance_core" / "server" / "page"
    files = [path for path in folder.iterdir() if path.is_file()]
    assert len(files) > 10
    with zipfile.ZipFile(fresh.built("radiance")) as wheel:
        for path in files:
            assert wheel.read(f"radiance_core/server/page/{path.name}") == path.read_bytes()


def test_nothing_installed_leads_into_the_checkout(fresh: Fresh) -> None:
    """No installed file of ours names a path of the checkout, and no path entry does."""
    checkout = str(ROOT).encode()
    site = next(fresh.env.glob("lib/python*/site-packages"))
    ours = [
        f
        for f in site.rglob("*")
        if f.is_file() and f.relative_to(site).parts[0].startswith("radiance")
    ]
    assert len(ours) > 100
    assert not [f for f in [*ours, *site.glob("*.pth")] if checkout in f.read_bytes()]
    path = json.loads(fresh.run("python", "-c", "import json, sys; print(json.dumps(sys.path))"))
    assert not [p for p in path if p.startswith(str(ROOT))]


def test_the_same_plugins_schemas_rows_and_layouts(fresh: Fresh) -> None:
    """Entry points, vocabulary, rows, constraints, and what each row stores for each encoding."""
    tree, outside = (
        ask_python(None, RECORDING, "describe"),
        ask_python(fresh, RECORDING, "describe"),
    )
    assert isinstance(tree, dict)
    assert isinstance(outside, dict)
    for group in (g for g in tree if g.startswith("radiance.")):
        bundled = [e for e in outside[group] if e[2] in {distribution_name(f) for f in FOLDERS}]
        assert bundled == tree[group]
    rows = _rows(tree)
    assert len(rows) > 50
    assert sum(a is not None for row in rows.values() for a in row["layouts"].values()) > 50
    assert {k: v for k, v in _rows(outside).items() if k in rows} == rows
    assert outside["standard"] == tree["standard"]
    assert [a for a in outside["architectures"] if a in tree["architectures"]] == tree[
        "architectures"
    ]
    known = {x["name"]: _facts(x) for x in outside["libraries"]}
    assert {x["name"]: _facts(x) for x in tree["libraries"]}.items() <= known.items()


def _rows(found: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{library['name']} {row['op']} {row['name']}": row
        for library in found["libraries"]
        for row in library["rows"]
    }


def _facts(library: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in library.items() if k != "rows"}


def test_results_are_equal_bit_for_bit(fresh: Fresh, tmp_path: Path) -> None:
    """Every row computes the same bytes from the same operands, laid-out weights included."""
    seed = secrets.randbits(32)
    tree = _recorded(None, tmp_path / "tree.npz", seed)
    outside = _recorded(fresh, tmp_path / "outside.npz", seed)
    for head in RECORDED:
        assert any(name.startswith(head) for name in tree), f"{head} was not recorded"
    encodings = {n.split()[5] for n in tree if n.startswith("libavx gemm_nt_q ") and "stored" in n}
    assert len(encodings) >= 5
    differing = [n for n in tree if n not in outside or tree[n].tobytes() != outside[n].tobytes()]
    assert not differing, f"seed {seed}"


def _recorded(fresh: Fresh | None, file: Path, seed: int) -> dict[str, np.ndarray]:
    names = ask_python(fresh, RECORDING, "results", file, seed)
    assert isinstance(names, list)
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[f"a{i}"] for i, name in enumerate(names)}
