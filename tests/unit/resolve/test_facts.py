"""What /graph says: the same facts as the texts, with the reasons."""

import json
import random

from radiance_abi import eq, isin, le
from radiance_abi.ops import parse_schema
from radiance_core.resolve.facts import graph_facts
from radiance_core.resolve.report import graph_text
from radiance_core.resolve.resolver import Resolver

from .nodes import PLAIN, gives, kernel, library, node

OTHER = parse_schema("other(M~, n) x[M,n]:f32 -> y[M,n]:f32")


def resolved(libraries, *nodes, largest=64):
    resolver = Resolver(libraries, {"TOKENS": largest})
    return [resolver.resolve(n)[0] for n in nodes]


def test_alike_nodes_share_a_selection():
    """Nodes stand in order; those of one op and geometry point at one selection."""
    libs = [library("one", kernel("a"), kernel("b", op="other"))]
    sizes = [random.choice([8, 16]) for _ in range(20)]
    nodes = [node({"n": n}, name=f"n{i}", schema=random.choice([OTHER, node().schema]))
             for i, n in enumerate(sizes)]  # fmt: skip
    facts = json.loads(json.dumps(graph_facts(resolved(libs, *nodes))))
    assert [each["name"] for each in facts["nodes"]] == [f"n{i}" for i in range(20)]
    for made, declared in zip(facts["nodes"], nodes, strict=True):
        selection = facts["selections"][made["selection"]]
        assert (selection["op"], selection["params"]["n"]) == (
            declared.schema.op, declared.params["n"],
        )  # fmt: skip
    kinds = {(n.schema.op, n.params["n"]) for n in nodes}
    assert len(facts["selections"]) == len(kinds)
    assert facts["num_ops"] == len({op for op, _ in kinds})


def test_what_refused_the_rows_before():
    """A band says which rows came before its kernel and why each was refused, none after it."""
    libs = [
        library("fast", kernel("wide", le("M", 4)), kernel("odd", eq("n", 7), priority=5)),
        library("slow", kernel("any"), kernel("never"), reference=True),
    ]
    [selection] = graph_facts(resolved(libs, node(weight=PLAIN)))["selections"]
    small, large = selection["bands"]
    assert (small["lower"], small["upper"], large["lower"], large["upper"]) == (1, 4, 5, 64)
    assert [(b["library"], b["kernel"], b["reference"]) for b in (small, large)] == [
        ("fast", "wide", False), ("slow", "any", True),
    ]  # fmt: skip
    odd = {"library": "fast", "kernel": "odd", "reason": "n=7 not met by n=8"}
    assert small["refused"] == [odd]
    assert large["refused"] == [
        odd, {"library": "fast", "kernel": "wide", "reason": "M<=4 not met by M 5..64"},
    ]  # fmt: skip
    assert small["why"] == (
        "Of 4 rows for this op, fast's wide is the first that takes this geometry; 1 row before it "
        "was refused."
    )
    assert "2 rows before it were refused" in large["why"]
    assert small["takes"] == ["M<=4"]


def test_the_only_row_and_the_first_row_say_so():
    """Why is told in words that fit: there was no choice, or the order decided."""
    [only] = graph_facts(resolved([library("a", kernel("k", isin("dtype", "f32")))],
                                  node({"n": 8, "dtype": "f32"})))["selections"]  # fmt: skip
    assert only["bands"][0]["why"] == "a has the only row for this op, and it takes this geometry."
    libs = [library("a", kernel("k", layout=gives("tiled"))), library("b", kernel("l"))]
    [first] = graph_facts(resolved(libs, node(weight=PLAIN)))["selections"]
    assert first["bands"][0]["why"].startswith("Of 2 rows for this op, a's k comes first in the")
    assert first["bands"][0]["layouts"] == ["tiled"]


def test_the_same_operands_as_the_text():
    """Operands are spelt as --debug-graph spells them."""
    nodes = resolved([library("a", kernel("k"))], node(weight=PLAIN))
    [made] = graph_facts(nodes)["nodes"]
    assert f"mine({', '.join(made['operands'])})" in graph_text(nodes)
    assert made["operands"] == ["x[TOKENS,8]:f32", f"w[8]:{PLAIN}"]
    assert graph_facts(nodes)["libraries"] == {
        "a": {"version": "0", "reference": False, "ops": ["mine"]}
    }
