"""What each standard op means, in a line, and the definitions that need more than one.

``python -m radiance_abi ops`` prints them with the schemas as docs/reference/ops.md.
"""

GROUPS: dict[str, dict[str, str]] = {
    "Norms": {
        "rmsnorm": "y = x * rsqrt(mean(x²) + eps) * (w + wadd); the gain is read as f32",
        "rmsnorm_add": (
            "residual_out = x + residual; y = rmsnorm of it: the mean of the f32 sum, the product "
            "of the stored one"
        ),
        "rmsnorm_quant_i8": "rmsnorm, then quant_act_i8 of what it would have stored",
        "rmsnorm_add_quant_i8": "rmsnorm_add, then quant_act_i8 of its y",
        "layernorm": "y = (x - mean) * rsqrt(variance + eps) * w + b, with the biased variance",
    },
    "Elements and rows": {
        "add": "y = a + b",
        "mul": "y = a * b; b has as many rows as a, or one row that serves all",
        "scale": "y = x * factor, the factor narrowed to f32",
        "softcap": "y = cap * tanh(x / cap)",
        "silu": "y = x * sigmoid(x)",
        "gelu": "y = x * Φ(x), the erf form",
        "gelu_tanh": "y = x / 2 * (1 + tanh(√(2/π) * (x + 0.044715 x³)))",
        "sigmoid": "y = 1 / (1 + exp(-x))",
        "softmax": "y = softmax of each row",
        "silu_mul": "silu of the first half, stored, times the second half",
        "gelu_tanh_mul": "gelu_tanh of the first half, stored, times the second half",
        "cast": "y = x in another float type",
        "gather_rows": "y[i] = x[idx[i]]; a negative index gives a row of zeros",
        "embed_lookup": "x[i] = wte[tokens[i]] * wscale; a negative token gives a row of zeros",
    },
    "Int8 activations": {
        "quant_act_i8": "codes, scales and code sums of x, by groups of consecutive elements",
        "gated_quant_i8": (
            "act(first half), stored, times the second half, stored; then quant_act_i8; "
            "act is silu or gelu_tanh"
        ),
        "dequant": "y = code * scale, a code of two planes being 128 * high + low",
    },
    "Matrix products": {
        "gemm_nt": "y[m,n] = Σ_k a[m,k] * b[n,k]",
        "gemm_nt_add": "gemm_nt, stored, plus res",
        "gemm_nt_bias": (
            "gemm_nt + bias, stored; act of it, stored; plus res. act is none, gelu or gelu_tanh"
        ),
        "gemm_nt_q": (
            "y[m,n] = Σ_k (code * a_scale)[m,k] * b[n,k], the codes as dequant reads them; a_sum "
            "serves weights with a min"
        ),
        "gemm_nt_q_add": "gemm_nt_q, stored, plus res",
        "gemm_nt_q_bias": "gemm_nt_q plus bias, rounded once",
        "gemm_nt_bf16": "gemm_nt of activations that were narrowed to bf16",
        "gemm_nt_bf16_add": "gemm_nt_bf16, stored, plus res",
        "logits_gemm": "gemm_nt with f32 results",
        "logits_gemm_q": "gemm_nt_q with f32 results",
        "logits_gemm_bf16": "gemm_nt_bf16 with f32 results",
    },
    "Positions and attention": {
        "rope": "rotate the first n_head + n_head_kv heads of each row, in place",
        "qk_norm_rope": (
            "rmsnorm of each query head with q_w and of each key head with k_w, stored, then rope"
        ),
        "kv_store": (
            "write row i at page, offset = divmod(slot_mapping[i], block_size); a negative slot "
            "writes nothing"
        ),
        "attn_paged": "out = softmax(scale * q·Kᵀ)·V over the keys that a row sees",
    },
    "Sampling": {
        "sample_keep": "copy the logits of rows whose log probabilities are wanted",
        "sample_penalties": (
            "for each distinct token of the window: v > 0 ? v / rep : v * rep, then "
            "- count * freq - pres"
        ),
        "sample_dry": (
            "lower each token that would go on with a repetition of the window's end, by "
            "dry_multiplier * dry_base ^ (length - allowed)"
        ),
        "sample_bias": "add values[m,j] to the logit of ids[m,j]; a negative id ends a row's list",
        "sample_temp": "divide by temp; a temp of 1 or at most 0 leaves the row",
        "sample_mask": "-inf where bit t % 32 of word t / 32 in line mask_row is clear",
        "sample_topk": (
            "the top_k largest logits (all that fit when top_k <= 0), the lower id first on a tie; "
            "none for a row with a NaN, and never -inf"
        ),
        "sample_topp": "keep the shortest prefix whose probability reaches top_p, at least one",
        "sample_minp": "drop what is less likely than min_p times the most likely",
        "sample_typical": (
            "keep those whose surprise is nearest to the entropy until their probability reaches "
            "typical_p, ties included"
        ),
        "sample_xtc": (
            "if u < xtc_probability, drop all that reach xtc_threshold but the least likely of them"
        ),
        "sample_pick": (
            "the first candidate whose cumulative probability exceeds u, else the last; -1 without "
            "candidates"
        ),
        "sample_draw": (
            "the token that the ops from sample_topk to sample_pick draw when every logit may be a "
            "candidate"
        ),
        "sample_argmax": (
            "greedy rows only: the largest logit, the lower id on a tie; -1 for a row with a NaN "
            "or of -inf alone"
        ),
        "sample_logprobs": (
            "the log probability of given[m], or of token[m] where that is negative, under the "
            "kept logits; its rank; and the n_top most likely tokens"
        ),
    },
}
"""Meaning by op, in groups."""

DEFINITIONS: dict[str, str] = {
    "Numbers": """\
Sums are accumulated in f32 or better; every narrowing rounds to nearest even. *Stored* means
rounded to the type of the operand that it would lie in, and read back from there. A row's result
depends on that row alone: not on how many rows a call has, not on which worker computed it.""",
    "Weights": """\
A `weight` operand may have any encoding that the kernel's `layout` hook accepts. Its values are
what `radiance_abi.encoding.decode` gives; a kernel may compute with the codes as long as the sum
is the same.""",
    "Int8 activations": """\
A group is `group` consecutive elements of a row, and divides it. In f32: amax is the largest
magnitude of the group, scale = amax / most, code = round-half-even(x * (most / amax)), asum = the
sum of the codes. A group of zeros has scale 0 and codes 0.

With `planes` = 1, most is 127 and q holds the codes. With `planes` = 2, most is 16256 and a code
is 128 * high + low with low in -64..63, that is high = floor((code + 64) / 128); columns [0, n) of
a row of q hold the high parts and columns [n, 2n) the low ones. A product sums a group's integers
as 128 * Σ high * b + Σ low * b, exactly. A row that serves one number of planes says so by a
constraint.""",
    "Rope": """\
With rot = rotary_dim or head_dim, pair i of a head turns by angle position * f_i, where f_i is
freqs[i] if that operand is present and theta^(-2i/rot) / scale otherwise. Angles are computed in
f64; cosine and sine are narrowed to f32 and then multiplied by mscale. `neox` pairs elements (i,
i + rot/2), `gptj` pairs (2i, 2i + 1). A pair (a, b) becomes (a cos - b sin, a sin + b cos).
Elements from rot on stay as they are.""",
    "Cache": """\
A page of the cache is [n_head_kv, block_size, kv_row]. With a float `kv_dtype` a slot of one head
is head_dim numbers of its key and then as many of its value. Otherwise elements are bytes, and
the block_size * kv_row bytes of one page and head are: codes of the keys, codes of the values,
scales of the keys, scales of the values.

| kv_dtype | keys | values |
|---|---|---|
| `int8` | 8-bit integers, rotated, in words | 8-bit integers, in words |
| `fp8` | E4M3, rotated | E4M3 |
| `k8_v4` | 8-bit integers, rotated, in words | 4-bit integers, rotated, in words |
| `fp8_v4` | E4M3, rotated | 4-bit integers, rotated |
| `k6_v4` | 6-bit integers, rotated | 4-bit integers, rotated |

All of it is in f32, and every kernel stores the same bytes. Numbers beyond ±65504 become that.
*Rotated*: groups of g consecutive numbers, g being the largest of 32, 16 and 8 that divides
head_dim, are transformed (at distances 1, 2 .. g/2 in this order, (a, b) becomes (a + b, a - b))
and multiplied by 4/g; the same transform divided by 4 undoes it. *E4M3*: a scale is one byte e a
slot and head and stands for 2^(e - 127), the least that brings the largest magnitude to 448 or
less, e being at least 1; a code is x / scale rounded. e = 255 with codes 0 stands for NaN.
*Integers* of b bits: a scale is f16 for 32 numbers, m / -2^(b-1) where m is the number of largest
magnitude (the positive one of two); a code is x / scale rounded and clamped, plus 2^(b-1). A
scale of 0 is +0 and has codes 2^(b-1), and one of NaN is 0x7e00 with such codes. Scales of one
page lie group by group, those of slots side by side. Codes lie slot by slot. A group of 32 is 16
bytes, byte i with the low 4 bits of number i and, above, of number i + 16, and for 6 bits two more
little-endian u32 with the high 2 bits of numbers 0 .. 15 and 16 .. 31, lowest first.

*In words* codes lie in words of four bytes, and block_size is a multiple of 8. Keys are
[head_dim / 4][block_size][4]: a word has four consecutive numbers of one slot. Values of 8 bits
are [block_size / 4][head_dim][4]: a word has one number of four consecutive slots; they are two's
complement, that is, without the 2^(b-1). Values of 4 bits are [block_size / 8][head_dim][4]: byte
j of a word has slot j of eight in its low bits and slot 4 + j in its high ones.""",
    "Attention": """\
Rows
cu_seqlens[s] .. cu_seqlens[s+1] belong to sequence s and are its last ones: row i of Q sits at
position seqused[s] - Q + i. Position j lies in page block_table[s, j / block_size]; a negative
page hides its keys. With `causal` a row at position p sees j <= p, otherwise all j < seqused[s];
a window w > 0 further demands |p - j| < w. A softcap c > 0 turns a logit l into c * tanh(l / c).
`scale` is 1/√head_dim unless given. Query head h reads key head h / (n_head / n_head_kv). A row
that sees nothing is zeros. q_len is the most rows of a sequence.""",
    "Request rows": """\
`params` has 96 bytes a row, little-endian, without padding: u64 seed, pos; f32 temp, top_p,
min_p, typical_p, rep_penalty, freq_penalty, pres_penalty, xtc_probability, xtc_threshold,
dry_multiplier, dry_base; i32 top_k, penalty_last_n, dry_allowed_length, dry_penalty_last_n,
hist_off, hist_len, mask_row, flags, dry_rep_limit.

Flags: 1 greedy, 2 penalties, 4 mask, 8 XTC, 16 DRY, 32 log probabilities, 64 bias. A greedy row
belongs to `sample_argmax` and every other sampling op but `sample_keep` and `sample_logprobs`
leaves it alone. Penalties, DRY, bias, mask (with mask_row >= 0), XTC, keep and log probabilities
act only on rows with their flag. What an op leaves alone keeps what it held. A row's window is the
last penalty_last_n (for DRY dry_penalty_last_n; all when negative) of
history[hist_off : hist_off + hist_len]. Ids outside the vocabulary are passed over.

Candidates lie in front, by descending logit; what is dropped becomes (-1, -inf) behind them.
Top-p acts for 0 < top_p < 1, min-p for min_p > 0, typical for 0 < typical_p < 1.

A draw u in [0, 1) is (splitmix64(seed * 0x9E3779B97F4A7C15 + pos) >> 40) / 2^24 in arithmetic
modulo 2^64, where splitmix64(z) adds 0x9E3779B97F4A7C15, then z = (z ^ z >> 30) *
0xBF58476D1CE4E5B9, z = (z ^ z >> 27) * 0x94D049BB133111EB, z ^ z >> 31. `sample_xtc` draws with
seed ^ 0x58544311.""",
    "Repetitions": """\
`sample_dry`: let w be the window, n its length, and allowed = dry_allowed_length, or 2 when that
is not positive. For a place j < n - 1, L(j) is the length of the longest run of tokens that ends at
j and also ends the window, but at most dry_rep_limit (4096 when that is 0 or less, or more). Where
L(j) >= allowed, token w[j + 1] would go on with the repetition. `breakers` has a byte for each
token of history; where the one of w[j + 1] is not 0, the place does not count. Each token found
has its logit lowered once, by dry_multiplier * dry_base ^ (L - allowed) with the longest of its L.
The power is a product in f32, factor by factor, that ends before it leaves the finite numbers.""",
    "Log probabilities": """\
In `sample_logprobs` a row's p is the softmax of its kept logits; logits of +inf share everything.
rank is the number of tokens with a larger logit, plus 1. A token that does not exist, and any row
with a NaN or of -inf alone, has log probability -inf and rank 0. top_idx and top_val list the
tokens above -inf by descending logit, the lower id first; what is left over is (-1, -inf).""",
}
"""What several ops share, by title."""
