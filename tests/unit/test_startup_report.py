"""The startup report: its figures are the plan's, and its times add up."""

import dataclasses
import re
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from radiance_abi import plain
from radiance_abi.vocabulary import STANDARD
from radiance_core.build import BuildSettings, Plan
from radiance_core.chat_format.format import ChatFormat
from radiance_core.cli.model_settings import build_settings
from radiance_core.config import load_config
from radiance_core.discover import Found, Libraries, Refused
from radiance_core.hardware import Machine, Memory
from radiance_core.plan.arena import pack
from radiance_core.plan.sites import find_sites
from radiance_core.resolve.tuning import Choice, Tuning
from radiance_core.startup_report import (
    chat_line,
    model_id,
    placement_text,
    ready_line,
    report,
    warnings_of,
)

from .test_bind import LARGEST, LIBRARY_, planned

MIB = 2**20
MACHINE = Machine("A Fast One", ("avx2",), 4, Memory(64 * MIB, 32 * MIB, 64 * MIB))


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A plan of the tiny model."""
    resolution, budget = planned()
    tensors = {
        "wte": SimpleNamespace(encoding=plain("f32"), nbytes=3 * MIB),
        "a": SimpleNamespace(encoding=plain("bf16"), nbytes=2 * MIB),
        "b": SimpleNamespace(encoding=plain("f16"), nbytes=MIB),
    }
    checkpoint = SimpleNamespace(
        path=Path("/m/Tiny.gguf"), tensors=tensors, total_bytes=6 * MIB, format="safetensors"
    )
    return Plan(
        BuildSettings(Path("/m/Tiny.gguf")),
        Libraries((LIBRARY_,), {}, {}, (), ()),
        SimpleNamespace(checkpoint=checkpoint, arch=SimpleNamespace(id="toy")),  # type: ignore[arg-type]
        resolution,
        find_sites(resolution),
        pack(resolution.graph, LARGEST),
        budget,
        LARGEST,
        MACHINE,
        {"discover": 0.5, "resolve": 0.007},
    )


def with_(plan: Plan, **changes: Any) -> Plan:
    return dataclasses.replace(plan, **changes)


def unwrapped(text: str) -> str:
    """Each row of a report on a line of its own."""
    return re.sub(r"\n {14}(?=\S)", " ", text)


def test_no_line_is_wider_than_a_terminal(plan: Plan) -> None:
    """Rows go on below their text, and no word is lost; sizes stand in one column."""
    checkpoint = plan.metadata.checkpoint
    path = Path("/m/" + "-".join(["Some-Model"] * 6) + ".gguf")
    named = SimpleNamespace(**{**vars(checkpoint), "path": path})
    metadata = SimpleNamespace(**{**vars(plan.metadata), "checkpoint": named})
    flags = dict.fromkeys(("max-num-seqs", "threads", "port", "top-k", "max-body-mib"), 2)
    config = load_config(flags, None, {})
    text = report(with_(plan, metadata=metadata), config, "1")
    assert max(map(len, text.splitlines())) <= 100
    for flag in flags:
        assert f"--{flag} 2 (command line)" in " ".join(text.split())
    ends = {len(line) for line in text.splitlines() if re.search(r"\d [MG]iB$", line)}
    assert ends == {100}
    assert all(len(line) - len(line.lstrip()) >= 2 for line in text.splitlines()[1:])


@pytest.mark.parametrize(
    ("number", "name"),
    [(3, "Q4_1"), (15, "Q4_K_M"), (None, "f32"), (999, "f32"), ("x", "f32"), ([1], "f32")],
)
def test_a_gguf_file_goes_by_the_name_that_people_give_it(
    plan: Plan, number: object, name: str
) -> None:
    """Its stated type, where that is one that is known; else the encodings of its tensors."""
    said = {} if number is None else {"general.file_type": number}
    checkpoint = SimpleNamespace(
        **{**vars(plan.metadata.checkpoint), "format": "gguf", "metadata": said}
    )
    metadata = SimpleNamespace(**{**vars(plan.metadata), "checkpoint": checkpoint})
    text = report(with_(plan, metadata=metadata), load_config({}, None, {}), "1")
    assert re.search(rf"^  model +Tiny  toy  6.0 MiB  \S*{name}\b", text, re.MULTILINE)


def test_it_says_what_the_plan_says(plan: Plan) -> None:
    """Model, machine, kernels, every term of the budget and the settings are there."""
    config = load_config(
        {"port": 1, "insecure": True, "api-key": ("s3cret",)}, None, {"RADIANCE_THREADS": "2"}
    )
    text = unwrapped(report(plan, config, "9.9"))
    rows = dict(re.findall(r"^  (\w+) +(.*)$", text, re.MULTILINE))
    assert text.startswith("STARTUP REPORT  radiance 9.9 · ")
    assert rows["model"] == (
        f"Tiny  toy  6.0 MiB  {plain('f32')}, {plain('bf16')} and 1 more  ctx 16"
    )
    assert rows["machine"] == (
        "A Fast One (avx2)  4 cores  64.0 MiB, 32.0 MiB free (cgroup: 64.0 MiB)"
    )
    assert rows["kernels"] == (
        "tiny: 8 ops, 11 nodes, up to 2 bands resolved in 7 ms · reference: none"
    )
    assert rows["settings"] == (
        "--threads 2 (environment RADIANCE_THREADS) · --port 1 (command line) · "
        "--api-key (hidden) (command line) · --insecure true (command line)"
    )
    assert rows["warnings"] == "none"
    for line, nbytes in plan.budget.lines():
        assert " ".join(line.split()) in " ".join(text.split())
        assert f"{nbytes / MIB:.1f} MiB" in text
    assert "s3cret" not in text
    assert "settings    all default" in report(plan, load_config({}, None, {}), "1")


@pytest.mark.parametrize(
    ("planes", "told"),
    [((2, 2), "int16"), ((1,), "int8"), ((1, 2), "int16 and int8")],
)
def test_it_says_which_activations_integer_weights_meet(
    plan: Plan, planes: tuple[int, ...], told: str
) -> None:
    """The kernels line ends with them, as the resolved nodes have them."""
    first, *rest = plan.resolution.nodes
    made = [
        dataclasses.replace(
            first,
            node=dataclasses.replace(first.node, params={**first.node.params, "planes": count}),
        )
        for count in planes
    ]
    changed = dataclasses.replace(plan.resolution, nodes=(*made, *rest))
    text = unwrapped(report(with_(plan, resolution=changed), load_config({}, None, {}), "1"))
    assert re.search(rf"reference: none · activations: {told}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("op", "asked", "told"),
    [
        ("gemm_nt_bf16", 1, " · activations: bf16"),
        ("gemm_nt", 1, " · activations: f32"),
        ("gemm_nt", 2, ""),
        ("their_gemm", 1, ""),
    ],
)
def test_it_says_what_int8_uses_where_no_weight_is_an_integer(
    plan: Plan, op: str, asked: int, told: str
) -> None:
    """bf16 where products take that, and what the model computes with where they do not.

    A plugin's own op need not say what it computes with.
    """
    first = plan.resolution.nodes[0]
    params: dict[str, int | float | str] = {"M": 1, "N": 8, "K": 8}
    schema = STANDARD.get(op)
    if schema is None:
        schema = dataclasses.replace(STANDARD["gemm_nt"], op=op)
    else:
        params["dtype"] = "f32"
    product = dataclasses.replace(
        first, node=dataclasses.replace(first.node, schema=schema, params=params)
    )
    changed = with_(
        plan,
        resolution=dataclasses.replace(plan.resolution, nodes=(product,)),
        settings=dataclasses.replace(plan.settings, activation_planes=asked),
    )
    text = unwrapped(report(changed, load_config({}, None, {}), "1"))
    assert re.search(rf"reference: none{told}$", text, re.MULTILINE)


@pytest.mark.parametrize(("name", "planes"), [("int16", 2), ("int8", 1)])
def test_the_setting_of_activations_reaches_the_build(name: str, planes: int) -> None:
    """--activations says how many planes the model is built with; two unless it is given."""
    config = load_config({"activations": name}, None, {})
    assert build_settings(config, Path("m")).activation_planes == planes
    default = build_settings(load_config({}, None, {}), Path("m"))
    assert default.activation_planes == BuildSettings(Path("m")).activation_planes == 2


def test_warnings_come_with_a_remedy(plan: Plan) -> None:
    """Reference kernels, refused plugins, small pages and a cache beyond free memory are told."""
    slow = dataclasses.replace(LIBRARY_, reference=True)
    nodes = tuple(
        dataclasses.replace(n, bands=tuple(dataclasses.replace(b, library=slow) for b in n.bands))
        for n in plan.resolution.nodes
    )
    found = Found("radiance.kernels", "bad", "radiance-bad", "1", None)
    crowded = dataclasses.replace(
        MACHINE, memory=Memory(64 * MIB, 3, None), small_pages="it says never; write madvise"
    )
    told = warnings_of(
        with_(
            plan,
            resolution=dataclasses.replace(plan.resolution, nodes=nodes),
            libraries=Libraries(
                (), {}, {}, (Refused(found, "broken"), Refused(found, "no", declined=True)), ()
            ),
            machine=crowded,
        )
    )
    assert told[0].startswith("8 ops are served by a reference library, far slower than this")
    assert told[0].endswith("Add a library that implements them to --kernels.")
    assert told[1] == "plugin bad (radiance-bad 1) was refused: broken"
    assert told[2] == (
        "no huge pages, without which decoding takes up to 1.5 times as long: "
        "it says never; write madvise."
    )
    assert told[3].endswith("are free now; lower --memory-mib or --max-num-seqs.")
    assert len(told) == 4
    assert warnings_of(plan) == []


def test_times_add_up() -> None:
    """Each stage is named, and what they leave open is called other."""
    line = ready_line(2.0, {"discover": 0.5, "tiny": 0.001, "lay out": 1.25})
    assert line.split(None, 2)[2] == "2.00 s   discover 0.50 · lay out 1.25 · other 0.25"
    assert "other 0.00" in ready_line(1.0, {"a": 1.5})


def test_placement_names_every_byte(plan: Plan) -> None:
    """Each site, the arena and each pool have a line with their size."""
    text = placement_text(plan)
    for site in plan.sites.values():
        assert re.search(rf"{site.weight.name} .*{site.nbytes / MIB:.1f} MiB", text)
    assert "activations: one arena of" in text
    pool = plan.budget.groups[0]
    assert (
        f"cache full: 1 layers, {pool.pages} pages of 4 tokens, f32, "
        f"{pool.total_bytes / MIB:.1f} MiB" in text
    )


@pytest.mark.parametrize(
    ("path", "name"), [("a/B.gguf", "B"), ("a/Model-1", "Model-1"), ("x/y.bin", "y.bin")]
)
def test_a_model_is_named_after_its_file(path: str, name: str) -> None:
    """The name is the file's or folder's, without the ending."""
    assert model_id(Path(path)) == name


def test_one_line_says_how_the_model_calls_and_thinks() -> None:
    """The line names the formats and their source, or why there is none."""
    assert chat_line(ChatFormat(why_no_tools="its chat template is silent")) == (
        "  chat        tools: none: its chat template is silent   reasoning: none"
    )


def test_it_says_which_choices_apply(plan: Plan) -> None:
    """Nothing where no kernel has axes; else the file and how many of its choices are used."""
    assert "  tuning" not in report(plan, load_config({}, None, {}), "1")
    choice = Choice(("gather_rows", "tiny", "gather"), frozenset(), None, (1, None), {"x": 1}, 1.5,
                    date(2026, 11, 30))  # fmt: skip
    resolution = plan.resolution
    nodes = [
        dataclasses.replace(
            n,
            bands=tuple(dataclasses.replace(b, axes={"x": 1}, choice=choice) for b in n.bands),
        )
        for n in resolution.nodes
    ]
    tuned = with_(plan, resolution=dataclasses.replace(resolution, nodes=tuple(nodes)))
    row = "  tuning      "
    text = report(tuned, load_config({}, None, {}), "1")
    assert f"{row}defaults of all kernels (rad-tune measures)" in text
    file = Tuning(Path("/t/a.txt"), {}, ("/t/a.txt: made for another machine.",))
    text = report(with_(tuned, tuning=file), load_config({}, None, {}), "1")
    assert f"{row}/t/a.txt: 1 choice applies to this model" in text
    assert "  warnings    /t/a.txt: made for another machine." in text
    text = report(with_(plan, tuning=file), load_config({}, None, {}), "1")
    assert f"{row}/t/a.txt: 0 choices apply to this model\n" in text
    partly = dataclasses.replace(file, passed_over={"b": 2, "c": 1})
    text = report(with_(plan, tuning=partly), load_config({}, None, {}), "1")
    assert "choices apply to this model; for libraries that are not loaded: b 2, c 1\n" in text
