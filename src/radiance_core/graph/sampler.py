"""Sampling as ops: the chain that the core appends to every graph that ends in logits."""

from radiance_core.graph.builder import GraphBuilder
from radiance_core.graph.ir import GraphValue

ROW_BYTES = 96
TOP_LOGPROBS = 20
"""Most likely tokens that are told with a log probability."""
MOST_BIASES = 1024
"""Logits of one row that may be biased."""


def declare_sampler(
    g: GraphBuilder, logits: GraphValue, history_tokens: int
) -> dict[str, GraphValue]:
    """Append the stages from logits to a token and what is told about it; return the results.

    The order: keep what log probabilities are of, argmax for greedy rows; penalties, DRY, bias,
    temperature, mask, top-k, top-p, min-p, typical, XTC, pick; log probabilities. From top-k to
    pick it is one op where a library has it, which needs no list of candidates.

    Args:
        g: the graph, whose logits are f32 [OUT_ROWS, V].
        logits: they; overwritten for rows that are not greedy.
        history_tokens: room for the tokens of all rows that penalties and DRY look back at.

    Returns:
        ``token`` i32 [OUT_ROWS, 1], -1 where a row has no finite logit; for rows with the flag
        ``logprob`` f32 and ``rank`` i32 [OUT_ROWS, 1], ``top_idx`` i32 and ``top_val`` f32
        [OUT_ROWS, TOP_LOGPROBS].
    """
    n_vocab = logits.shape[1]
    assert isinstance(n_vocab, int), "logits have a fixed width"
    params = g.input("sampling", ("OUT_ROWS", ROW_BYTES), "u8")
    history = g.input("history", (history_tokens,), "i32")
    breakers = g.input("dry_breakers", (history_tokens,), "u8")
    bias = (
        g.input("bias_ids", ("OUT_ROWS", MOST_BIASES), "i32"),
        g.input("bias_values", ("OUT_ROWS", MOST_BIASES), "f32"),
    )
    bitmask = g.input("bitmask", ("OUT_ROWS", -(-n_vocab // 32)), "i32")
    given = g.input("logprob_ids", ("OUT_ROWS", 1), "i32")
    wide = ("OUT_ROWS", n_vocab)
    kept = g.op("sample_keep", logits, params, g.empty(wide, "f32"))
    token = g.op("sample_argmax", logits, params, g.empty(("OUT_ROWS", 1), "i32"))
    logits = g.op("sample_penalties", logits, params, history)
    logits = g.op("sample_dry", logits, params, history, breakers)
    logits = g.op("sample_bias", logits, params, *bias)
    logits = g.op("sample_temp", logits, params)
    logits = g.op("sample_mask", logits, params, bitmask)
    if g.has("sample_draw", logits, params, token):
        token = g.op("sample_draw", logits, params, token)
    else:
        token = _draw_by_stages(g, logits, params, token)
    names = {"logprob": (1, "f32"), "rank": (1, "i32")}
    names |= {"top_idx": (TOP_LOGPROBS, "i32"), "top_val": (TOP_LOGPROBS, "f32")}
    rooms = (g.empty(("OUT_ROWS", width), kind) for width, kind in names.values())
    told = g.op("sample_logprobs", kept, params, token, given, *rooms)
    return {"token": token, **dict(zip(names, told, strict=True))}


def _draw_by_stages(
    g: GraphBuilder, logits: GraphValue, params: GraphValue, token: GraphValue
) -> GraphValue:
    wide = logits.shape
    candidates = g.op("sample_topk", logits, params, g.empty(wide, "i32"), g.empty(wide, "f32"))
    for op in ("sample_topp", "sample_minp", "sample_typical", "sample_xtc"):
        candidates = g.op(op, *candidates, params)
    drawn: GraphValue = g.op("sample_pick", *candidates, params, token)
    return drawn
