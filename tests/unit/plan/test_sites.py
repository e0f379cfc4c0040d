"""Sites and staging: one place per weight and arrangement, and the bytes of what steps bring in."""

from radiance_abi import Layout, affine, le, plain
from radiance_abi.architectures import Source
from radiance_core.graph.ir import GraphIR, GraphWeight, Node
from radiance_core.plan.sites import find_sites, site_key
from radiance_core.plan.staging import input_shapes, staging_bytes
from radiance_core.resolve.resolver import Resolver
from radiance_core.resolve.stage import KvFormat, Resolution

from ..graph.building import builder, f32
from ..resolve.nodes import SCHEMA, gives, kernel, library, node

Q8 = affine("i8", ("f16", 1, 32))


def of(weight: GraphWeight) -> Node:
    made = node(weight=weight.encoding)
    return Node("n", SCHEMA, (made.operands[0], weight), {"n": 8}, (), "TOKENS", "TOKENS")


def sites_of(nodes: list[Node], *kernels: object, name: str = "a") -> dict:
    resolver = Resolver([library(name, *kernels)], {"TOKENS": 32})  # type: ignore[arg-type]
    resolved = tuple(resolver.resolve(n)[0] for n in nodes)
    return find_sites(Resolution(GraphIR(tuple(nodes), (), (), (), {}), resolved, {}))


def test_a_weight_is_stored_once_for_all_its_readers() -> None:
    """Two nodes that read one weight, and two names of one tensor, share a site."""
    one = GraphWeight("embed", (8,), Q8, Source(("wte",)))
    tied = GraphWeight("head", (8,), Q8, Source(("wte",)))
    other = GraphWeight("norm", (8,), plain("f32"), Source(("n",)))
    k = kernel("k", layout=gives("rows", (2, 4)))
    sites = sites_of([of(one), of(one), of(tied), of(other)], k)
    assert set(sites) == {("wte", "a.rows"), ("n", "a.rows")}
    site = sites["wte", "a.rows"]
    assert (site.shape, site.dtype, site.nbytes) == ((2, 4), "f32", 32)
    assert site.geometry == {"n": 8, "M": 32}


def test_a_plain_weight_as_it_is_has_its_own_size() -> None:
    """Without a layout the site is the plane."""
    w = GraphWeight("w", (8,), plain("bf16"), Source(("w",)))
    (site,) = sites_of([of(w)], kernel("k")).values()
    assert (site.key, site.shape, site.dtype, site.nbytes) == (("w", ""), (8,), "bf16", 16)


def test_a_layouts_name_counts_within_its_library() -> None:
    """Equal names of two libraries are two arrangements; parts and planes tell sources apart."""
    w = GraphWeight("w", (8,), Q8, Source(("w",)))
    layout = Layout("rows", "f32", (8,))
    assert site_key(w, "a", layout) != site_key(w, "b", layout)
    assert site_key(w, "a", None) == site_key(w, "b", None)
    joined = GraphWeight("w", (8,), Q8, Source(("w", "v"), join=True))
    assert site_key(w, "a", layout) != site_key(joined, "a", layout)


def test_bands_of_one_arrangement_share_it() -> None:
    """Two rows of a node that store alike need one site, made by the first of them."""
    w = GraphWeight("w", (8,), Q8, Source(("w",)))
    few = kernel("few", le("M", 4), layout=gives("rows"))
    (site,) = sites_of([of(w)], few, kernel("many", layout=gives("rows"))).values()
    assert (site.kernel.name, site.geometry["M"]) == ("few", 4)


def test_staging_counts_what_steps_bring_in() -> None:
    """Each input has its greatest extents, block tables in pages, and its own element size."""
    g = builder({"wte": f32(10, 8)})
    g.kv_group("full", n_head_kv=1, head_dim=8, layers=[0])
    g.input("sampling", ("OUT_ROWS", 96), "u8")
    g.logits(g.rows(g.op("embed_lookup", g.step.tokens, g.weight("wte", (10, 8))), "OUT"))
    largest = {"TOKENS": 32, "SEQS": 4, "OUT_ROWS": 4}
    shapes = input_shapes(g.finish(), {"full": KvFormat(24, "f32")}, largest)
    assert shapes == {
        "tokens": (32,),
        "positions": (32,),
        "cu_seqlens": (5,),
        "out_ids": (4,),
        "full.slot_mapping": (32,),
        "full.block_table": (4, 3),
        "full.seqused": (4,),
        "sampling": (4, 96),
    }
    assert staging_bytes(g.finish(), shapes) == 4 * (32 + 32 + 5 + 4 + 32 + 12 + 4) + 4 * 96
