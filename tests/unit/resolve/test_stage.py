"""Resolving a whole graph: attention fixes its pool, and reference libraries stop start-up."""

import re

import pytest

from radiance_abi import Constraint, Kernel, KernelLibrary, eq, isin, le
from radiance_core.graph.errors import ResolveError
from radiance_core.graph.ir import GraphIR
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.stage import KvFormat, Resolution, refuse_reference, resolve

from ..graph.building import builder, f32
from .nodes import kernel, library

LARGEST = {"TOKENS": 32, "OUT_ROWS": 4, "MAX_Q_LEN": 32}
HEADS = {"n_head_kv": 1, "head_dim": 8}


def graph(groups: int = 1, attend: bool = True) -> GraphIR:
    """kv_store, then attention, per group of one layer each."""
    g = builder({"wte": f32(10, 8)})
    x = g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8)))
    for i in range(groups):
        group = g.kv_group(f"g{i}", **HEADS, layers=[i])
        g.op("kv_store", x, x, group.slot_mapping, group.layer(i))
        if attend:
            x = g.op("attn_paged", x, group.layer(i), group.block_table, group.seqused,
                     g.step.cu_seqlens, n_head=1, causal=1, window=0)  # fmt: skip
    g.logits(g.rows(x, "OUT"))
    return g.finish()


def attention(name: str, *where: Constraint) -> Kernel:
    return kernel(name, *where, op="attn_paged")


def rest(*leave: str) -> list[Kernel]:
    ops = ["embed_lookup", "kv_store", "gather_rows"]
    return [kernel(f"any_{op}", op=op) for op in ops if op not in leave]


def resolved(*libraries: KernelLibrary, kv_dtype: str | None = None, **given: object) -> Resolution:
    declared = graph(**given)  # type: ignore[arg-type]
    return resolve(declared, Resolver(libraries, LARGEST), kv_dtype)


def refused(text: str) -> "pytest.RaisesExc[ResolveError]":
    return pytest.raises(ResolveError, match=re.escape(text))


SIZE = (eq("block_size", 16), isin("kv_dtype", "bf16 f32"))


def test_attention_fixes_its_pool() -> None:
    """Block size and type come from the attention row, and every op of the group gets them."""
    found = resolved(library("a", attention("k", *SIZE), *rest()), groups=2)
    assert found.kv == {"g0": KvFormat(16, "bf16"), "g1": KvFormat(16, "bf16")}
    for n in found.nodes:
        if n.node.schema.op in ("kv_store", "attn_paged"):
            assert n.bands[0].params["block_size"] == 16
            assert n.bands[0].params["kv_dtype"] == "bf16"


def test_bands_of_attention_share_one_pool() -> None:
    """A row for more queries that wants other pages than the row below it is refused."""
    few = attention("few", le("q_len", 4), *SIZE)
    many = attention("many", eq("block_size", 32), isin("kv_dtype", "bf16"))
    with refused("a.many: block_size=32 not met by block_size=16"):
        resolved(library("a", few, many, *rest()))
    fits = attention("fits", eq("block_size", 16), isin("kv_dtype", "bf16"))
    found = resolved(library("a", few, many, *rest()), library("b", fits))
    attn = next(n for n in found.nodes if n.node.schema.op == "attn_paged")
    assert [b.kernel.name for b in attn.bands] == ["few", "fits"]


def test_a_store_that_does_not_fit_the_pool_is_refused() -> None:
    """An op over the cache must take what attention asks for."""
    store = kernel("store", eq("block_size", 64), op="kv_store")
    with refused("a.store: block_size=64 not met by block_size=16"):
        resolved(library("a", attention("k", *SIZE), store, *rest("kv_store")))


def test_attention_must_say_what_its_pool_is() -> None:
    """A row that fixes nothing cannot be planned for."""
    with refused("attn_paged: kernel k of a must fix block_size (eq) and kv_dtype (in), so that"):
        resolved(library("a", attention("k"), *rest()))


def test_a_pool_that_nobody_reads_is_refused() -> None:
    """A group without attention has no arrangement."""
    with refused("kv group g0: expected an attention op that reads it, got none"):
        resolved(library("a", *rest()), attend=False)


def test_misses_of_the_whole_graph_come_together() -> None:
    """Every op without a kernel is in one error."""
    with pytest.raises(ResolveError) as caught:
        resolved(library("a", *rest("kv_store", "gather_rows")), groups=2)
    text = str(caught.value)
    assert text.startswith("3 op geometries have no kernel:")
    assert "attn_paged: no kernel takes" in text
    assert "(attn_paged g0.0 and 1 more)" in text
    assert "kv_store: no kernel takes" in text
    assert "gather_rows: no kernel takes" in text


def test_reference_libraries_stop_the_start() -> None:
    """Ops that only a reference library serves are named, with who else could serve them."""
    slow = library("slow", attention("k", *SIZE), *rest(), reference=True)
    fast = library("fast", kernel("k", op="kv_store"))
    found = resolved(fast, slow)
    assert found.reference_ops() == dict.fromkeys(
        ["embed_lookup", "attn_paged", "gather_rows"], "slow"
    )
    with refused(
        "3 ops of toy resolve only to a reference library (slow), which serves orders of magnitude "
        "slower than this machine can: attn_paged, embed_lookup, gather_rows. To serve them fast "
        "add a library that serves them as they are here (no installed library does). To go on "
        "anyway: --debug-accept-reference-kernels."
    ):
        refuse_reference(found, "toy", {})
    with refused("(installed and able: --kernels other,quick,slow)"):
        refuse_reference(found, "toy", {"attn_paged": ["quick"], "gather_rows": ["other"]})
    refuse_reference(resolved(library("a", attention("k", *SIZE), *rest())), "toy", {})


def test_rows_that_leave_an_op_to_a_reference_library_say_why() -> None:
    """A fast library that has the op, and not for this geometry or encoding, is named with that."""
    slow = library("slow", attention("k", *SIZE), *rest(), reference=True)
    picky = [kernel(f"k{n}", isin("dtype", "f64"), op="gather_rows") for n in range(6)]
    found = resolved(library("fast", attention("k", *SIZE), *rest("gather_rows"), *picky), slow)
    with refused(
        "1 op of toy resolves only to a reference library (slow), which serves orders of magnitude "
        "slower than this machine can: gather_rows. To serve them fast add a library that serves "
        "them as they are here (no installed library does). Rows that do not: "
        "gather_rows: fast.k0: dtype in {f64} not met by dtype=f32; "
    ):
        refuse_reference(found, "toy", {})
    with refused("fast.k3: dtype in {f64} not met by dtype=f32; and 2 more. To go on anyway: --"):
        refuse_reference(found, "toy", {})


def test_the_cache_type_can_be_asked_for() -> None:
    """A stated element type goes before the kernel's preference, and one it lacks is a miss."""
    lib = library("a", attention("k", eq("block_size", 16), isin("kv_dtype", "f16 f32")), *rest())
    assert resolved(lib).kv["g0"].dtype == "f16"
    assert resolved(lib, kv_dtype="f32").kv["g0"].dtype == "f32"
    with refused("a.k: kv_dtype in {f16,f32} not met by kv_dtype=bf16"):
        resolved(lib, kv_dtype="bf16")


def test_nothing_is_packed_unless_asked() -> None:
    """Where nobody asked, packed words are passed over, and a row that has no other is refused."""
    both = attention("both", eq("block_size", 16), isin("kv_dtype", "fp8 k6_v4 bf16 f32"))
    assert resolved(library("a", both, *rest())).kv["g0"].dtype == "bf16"
    assert resolved(library("a", both, *rest()), kv_dtype="k6_v4").kv["g0"].dtype == "k6_v4"
    only = library("a", attention("k", eq("block_size", 16), isin("kv_dtype", "fp8")), *rest())
    with refused("a.k: kv_dtype in {fp8} is packed, which is only used when asked for"):
        resolved(only)
    assert resolved(only, kv_dtype="fp8").kv["g0"].dtype == "fp8"
