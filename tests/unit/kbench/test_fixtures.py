"""Fixtures: what is recorded of which sizes, and that it can be drawn again."""

from collections import defaultdict

import numpy as np
import pytest

from radiance_abi import KernelLibrary
from radiance_abi.kv_cache import CACHE_DTYPES
from radiance_abi.testing.formulas import FORMULAS
from radiance_abi.vocabulary import STANDARD
from radiance_core.kbench import answers, speed
from radiance_core.kbench.drawing import digest, draw
from radiance_core.kbench.fixture import Fixture, FixtureError, bundled, read, write
from radiance_core.kbench.paging import paged, unpaged
from radiance_core.kbench.plan import planned
from radiance_core.kbench.record import record
from radiance_core.kbench.replay import Drawn

FIXTURES = [read(path) for path in bundled()]
SMALL = 1 << 21


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.family)
def test_a_fixture_holds_what_its_sizes_plan(fixture):
    """Every planned call is recorded, every op of the vocabulary is planned."""
    want = [(c.op, dict(c.params), dict(c.weights), c.past) for c in planned(fixture.sizes)]
    found = [(c.op, c.params, c.weights, c.past) for c in fixture.cases]
    assert found == want, "--record it again"
    assert {op for op, *_ in want} == set(STANDARD)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.family)
def test_products_of_codes_are_planned_at_every_size(fixture):
    """Each weight meets one plane and two, of one row and of more than a kernel takes at once."""
    seen = defaultdict(set)
    for call in planned(fixture.sizes):
        if call.op.startswith("gemm_nt_q"):
            seen[call.op, call.weights["b"]].add((call.params["M"], call.params["planes"]))
    assert {op for op, _ in seen} == {"gemm_nt_q", "gemm_nt_q_add", "gemm_nt_q_bias"}
    assert all(sizes == {(1, 1), (1, 2), (100, 1), (100, 2)} for sizes in seen.values())


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.family)
def test_attention_is_planned_over_long_pasts(fixture):
    """Every kind of cache is read over more than 1,100 keys, and through the family's own window.

    One row and several are asked for; the keys are there in what is drawn.
    """
    calls = [c for c in planned(fixture.sizes) if c.op == "attn_paged" and c.past]
    seen = {(c.params["kv_dtype"], c.params["q_len"], c.params["window"]) for c in calls}
    windows = {0, fixture.sizes.window}
    assert seen == {(k, most, w) for k in CACHE_DTYPES for most in (1, 33) for w in windows}
    case = draw(STANDARD["attn_paged"], calls[0].params, {}, fixture.seed, calls[0].past)
    assert case.array("seqused").max() > 1100
    assert f"keys={case.array('seqused').max()}" in str(case)


def test_what_models_issue_is_planned():
    """Sampling is over real vocabularies, and rope pairs as files of the family have it."""
    modes, vocabularies = defaultdict(set), defaultdict(set)
    for fixture in FIXTURES:
        for call in planned(fixture.sizes):
            if call.op in ("rope", "qk_norm_rope"):
                modes[fixture.family].add(call.params["mode"])
            if call.op.startswith("sample_") and "n_vocab" in call.params:
                vocabularies[fixture.family].add(call.params["n_vocab"])
    assert vocabularies == {"gemma3": {262144}, "qwen3": {151936}, "smollm2": {49152}}
    assert modes == {"gemma3": {"neox"}, "qwen3": {"neox"}, "smollm2": {"gptj", "neox"}}


def test_what_is_timed():
    """Prompts of either number of planes, and attention of one row and several over 8,192 keys.

    A window hides what is before it, so that none is timed over more keys than were recorded.
    """
    small = [f for f in FIXTURES if f.family == "smollm2"]
    cases = Drawn(small, STANDARD)
    products = [s for _, _, c in cases.of("gemm_nt_q") for s in speed._sizes(c)]
    timed = {(s.params["M"], s.params["planes"]) for s in products}
    assert timed == {(m, planes) for m in (1, 100, 256) for planes in (1, 2)}
    long = [s for _, _, c in cases.of("attn_paged") for s in speed._sizes(paged(c, 32))]
    long = [s for s in long if s.array("seqused").tolist() == [8192]]
    timed = {(s.params["kv_dtype"], len(s.array("q"))) for s in long}
    assert timed == {(k, most) for k in CACHE_DTYPES for most in (1, 33)}
    assert all(s.params["q_len"] == len(s.array("q")) for s in long)
    windowed = long[0].with_params(window=512)
    assert list(speed._sizes(windowed)) == [windowed]
    assert np.isfinite(FORMULAS["attn_paged"](long[0])["out"].value).all()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f.family)
def test_operands_are_drawn_again(fixture):
    """The operands are those that were recorded; large ones are left to the command."""
    seen = 0
    for case in fixture.cases:
        sizes = [v for v in case.params.values() if isinstance(v, int)]
        if int(np.prod(sorted(sizes)[-2:])) > SMALL:
            continue
        drawn = draw(STANDARD[case.op], case.params, case.weights, fixture.seed, case.past)
        assert digest(drawn) == case.operands, f"{drawn}: record the fixture again"
        seen += 1
    assert seen > 60


def test_writing_and_reading_give_the_same(tmp_path):
    """A fixture is what its file says."""
    write(FIXTURES[0], tmp_path / "again.json")
    assert read(tmp_path / "again.json") == FIXTURES[0]
    assert (tmp_path / "again.json").read_bytes() == bundled()[0].read_bytes()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"family": "a"}', '{"family": 1, "about": ""}'])
def test_a_file_that_is_no_fixture_is_refused(tmp_path, text):
    """The error names the file and what is expected."""
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(FixtureError, match=r"bad\.json: expected a fixture with family, about"):
        read(tmp_path / "bad.json")


def test_a_reference_that_lacks_a_row_records_nothing():
    """The text names the library and the case."""
    with pytest.raises(FixtureError, match="empty: expected a row that serves rmsnorm M=5"):
        record(Fixture("f", "", FIXTURES[0].sizes), KernelLibrary("empty"))


def test_encodings_that_do_not_fit_are_refused():
    """A weight whose columns its encoding's blocks do not divide cannot be drawn."""
    params = {"M": 1, "N": 8, "K": 40, "dtype": "f32"}
    with pytest.raises(FixtureError, match="its weights do not fit their encodings"):
        draw(STANDARD["gemm_nt"], params, {"b": "i8*f16[1x32]"}, 0)


def test_params_that_make_no_operands_are_refused():
    """The text says of what operands could not be drawn."""
    with pytest.raises(FixtureError, match="add M=2: operands cannot be drawn"):
        draw(STANDARD["add"], {"M": 2}, {}, 0)


@pytest.mark.parametrize("kind", CACHE_DTYPES)
@pytest.mark.parametrize("block", [8, 16, 32, 48])
def test_pages_of_another_size_hold_the_same_conversations(kind, block):
    """Attention over a cache in other blocks, poisoned between, is the same in f64."""
    params = {"q_len": 5, "head_dim": 32, "n_head": 4, "n_head_kv": 2, "block_size": 16,
              "causal": 1, "window": 0, "dtype": "f32", "kv_dtype": kind}  # fmt: skip
    case = draw(STANDARD["attn_paged"], params, {}, 3)
    other = paged(case, block)
    assert other.array("kv_cache").shape[2] == block
    want, got = (FORMULAS["attn_paged"](c)["out"] for c in (case, other))
    np.testing.assert_array_equal(got.value, want.value)
    assert np.isfinite(got.value).all()


@pytest.mark.parametrize("kind", CACHE_DTYPES)
def test_a_written_cache_reads_the_same_from_other_pages(kind):
    """What kv_store writes lies at its slot whatever the size of blocks."""
    params = {"M": 9, "head_dim": 32, "n_head_kv": 2, "block_size": 16, "dtype": "f32",
              "kv_dtype": kind}  # fmt: skip
    case = draw(STANDARD["kv_store"], params, {}, 4)
    slots = len(case.array("kv_cache")) * 16
    found = []
    for one in (case, paged(case, 48)):
        stored = FORMULAS["kv_store"](one)["kv_cache"].value
        found.append(unpaged({"kv_cache": stored}, one, slots)["kv_cache"])
    assert found[0].tobytes() == found[1].tobytes()


def test_answers_see_what_is_far_and_pass_what_is_near():
    """A result within the tolerance passes; one beyond it or of another extent does not."""
    rng = np.random.default_rng()
    value = rng.normal(size=(7, 300))
    want = answers.whole(value, np.full(value.shape, 1e-3))
    near = value + rng.uniform(-1e-3, 1e-3, value.shape)
    assert answers.difference("y", want, near) == ""
    assert "expected extents [7, 300], got [300, 7]" in answers.difference("y", want, value.T)
    far = value.copy()
    far[6, 299] += 0.1
    assert "y[6, 299]: expected" in answers.difference("y", want, far)
    exact = answers.whole(np.round(value * 4), None)
    assert answers.difference("y", exact, np.round(value * 4)) == ""
    assert answers.difference("y", exact, np.roll(np.round(value * 4), 1, axis=0)) != ""


def test_equal_bytes_are_asked_for_between_the_places_too():
    """Two elements that change places keep every norm, and are seen where all must be equal."""
    value = np.arange(4000, dtype=np.float64)[None]
    changed = value.copy()
    hits = [i for i in range(1000, 1100) if _unseen(value, i)]
    a, b = hits[0], hits[1]
    changed[0, [a, b]] = changed[0, [b, a]]
    assert "expected the recorded bytes" in answers.difference(
        "y", answers.whole(value, None), changed
    )


def _unseen(value, index) -> bool:
    """Return whether an element is not among the compared places."""
    other = value.copy()
    other[0, index] += 0.5
    said = answers.difference("y", answers.whole(value, np.full(value.shape, 1e-9)), other)
    return ".." in said
