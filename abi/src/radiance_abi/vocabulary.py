"""The standard ops. A library serves them by name; one that declares an op of its own adds a schema.

Numerics that hold for every op (the reference library is the oracle): accumulate in f32, round to nearest
even on every narrowing, store an intermediate in its operand's dtype before it is read back. M is tokens
(rows), and rows never influence each other.
"""

from radiance_abi.ops import OpSchema, parse_schema

# One op a line, in the spelling of radiance_abi.ops.
_LINES = """
rmsnorm(M~, n, eps:f, dtype:s, wadd:f=0) x[M,n], weight w[n]:* -> y[M,n]
rmsnorm_add(M~, n, eps:f, dtype:s, wadd:f=0) x[M,n], residual[M,n], weight w[n]:* -> y[M,n], residual_out[M,n]
rmsnorm_quant_i8(M~, n, eps:f, group, dtype:s, wadd:f=0, planes=1) x[M,n], weight w[n]:* -> q[M,planes*n]:i8, scale[M,n/group]:f32, asum[M,n/group]:i32
rmsnorm_add_quant_i8(M~, n, eps:f, group, dtype:s, wadd:f=0, planes=1) x[M,n], residual[M,n], weight w[n]:* -> q[M,planes*n]:i8, scale[M,n/group]:f32, asum[M,n/group]:i32, residual_out[M,n]
layernorm(M~, n, eps:f, dtype:s) x[M,n], weight w[n]:*, weight b?[n]:* -> y[M,n]
add(M~, n, dtype:s) a[M,n], b[M,n] -> y[M,n]
mul(M~, n, dtype:s) a[M,n], b[_,n] -> y[M,n]
scale(M~, n, factor:f, dtype:s) x[M,n] -> y[M,n]
softcap(M~, n, cap:f, dtype:s) x[M,n] -> y[M,n]
silu(M~, n, dtype:s) x[M,n] -> y[M,n]
gelu(M~, n, dtype:s) x[M,n] -> y[M,n]
gelu_tanh(M~, n, dtype:s) x[M,n] -> y[M,n]
sigmoid(M~, n, dtype:s) x[M,n] -> y[M,n]
softmax(M~, n, dtype:s) x[M,n] -> y[M,n]
silu_mul(M~, n, dtype:s) gate_up[M,2*n] -> y[M,n]
gelu_tanh_mul(M~, n, dtype:s) gate_up[M,2*n] -> y[M,n]
gated_quant_i8(M~, n, group, act:s, dtype:s, planes=1) gate_up[M,2*n] -> q[M,planes*n]:i8, scale[M,n/group]:f32, asum[M,n/group]:i32
cast(M~, n, from:s, to:s) x[M,n]:from -> y[M,n]:to
gather_rows(M~, n, dtype:s) x[_,n], idx[M]:i32 -> y[M,n]
quant_act_i8(M~, n, group, dtype:s, planes=1) x[M,n] -> q[M,planes*n]:i8, scale[M,n/group]:f32, asum[M,n/group]:i32
dequant(M~, n, group, dtype:s, planes=1) q[M,planes*n]:i8, scale[M,n/group]:f32 -> y[M,n]
gemm_nt(M~, N, K, dtype:s) a[M,K], weight b[N,K]:* -> y[M,N]
gemm_nt_add(M~, N, K, dtype:s) a[M,K], weight b[N,K]:*, res[M,N] -> y[M,N]
gemm_nt_bias(M~, N, K, dtype:s, act:s=none) a[M,K], weight b[N,K]:*, weight bias[N]:*, res?[M,N] -> y[M,N]
gemm_nt_q(M~, N, K, group, dtype:s, planes=1) a[M,planes*K]:i8, a_scale[M,K/group]:f32, a_sum[M,K/group]:i32, weight b[N,K]:* -> y[M,N]
gemm_nt_q_add(M~, N, K, group, dtype:s, planes=1) a[M,planes*K]:i8, a_scale[M,K/group]:f32, a_sum[M,K/group]:i32, weight b[N,K]:*, res[M,N] -> y[M,N]
gemm_nt_q_bias(M~, N, K, group, dtype:s, planes=1) a[M,planes*K]:i8, a_scale[M,K/group]:f32, a_sum[M,K/group]:i32, weight b[N,K]:*, weight bias[N]:* -> y[M,N]
gemm_nt_bf16(M~, N, K, dtype:s) a[M,K]:bf16, weight b[N,K]:* -> y[M,N]
gemm_nt_bf16_add(M~, N, K, dtype:s) a[M,K]:bf16, weight b[N,K]:*, res[M,N] -> y[M,N]
logits_gemm(M~, n_vocab, n_embd, dtype:s) x[M,n_embd], weight lm_head[n_vocab,n_embd]:* -> logits[M,n_vocab]:f32
logits_gemm_q(M~, n_vocab, n_embd, group, dtype:s, planes=1) a[M,planes*n_embd]:i8, a_scale[M,n_embd/group]:f32, a_sum[M,n_embd/group]:i32, weight lm_head[n_vocab,n_embd]:* -> logits[M,n_vocab]:f32
logits_gemm_bf16(M~, n_vocab, n_embd, dtype:s) a[M,n_embd]:bf16, weight lm_head[n_vocab,n_embd]:* -> logits[M,n_vocab]:f32
embed_lookup(M~, n_embd, n_vocab, dtype:s, wscale:f=1) tokens[M]:i32, weight wte[n_vocab,n_embd]:* -> x[M,n_embd]
rope(M~, head_dim, n_head, n_head_kv, theta:f, dtype:s, scale:f=1, mode:s=neox, rotary_dim?, mscale:f=1) inout qkv[M,_], positions[M]:i32, freqs?[_]:f32 ->
qk_norm_rope(M~, head_dim, n_head, n_head_kv, theta:f, eps:f, dtype:s, scale:f=1, mode:s=neox, rotary_dim?, mscale:f=1, wadd:f=0) inout qkv[M,_], positions[M]:i32, weight q_w[head_dim]:*, weight k_w[head_dim]:*, freqs?[_]:f32 ->
kv_store(M~, head_dim, n_head_kv, block_size, kv_dtype:s, dtype:s) k[M,n_head_kv*head_dim], v[M,n_head_kv*head_dim], slot_mapping[M]:i32, state kv_cache[_,n_head_kv,block_size,kv_row]:kv_dtype ->
attn_paged(q_len~, head_dim, n_head, n_head_kv, block_size!, causal, window, dtype:s, kv_dtype!:s, scale?:f, softcap:f=0) q[_,n_head*head_dim], state kv_cache[_,n_head_kv,block_size,kv_row]:kv_dtype, block_table[_,_]:i32, seqused[_]:i32, cu_seqlens[_]:i32 -> out[_,n_head*head_dim]
sample_keep(M~, n_vocab) logits[M,n_vocab]:f32, params[M,96]:u8, inout kept[M,n_vocab]:f32 ->
sample_penalties(M~, n_vocab) inout logits[M,n_vocab]:f32, params[M,96]:u8, history[_]:i32 ->
sample_dry(M~, n_vocab) inout logits[M,n_vocab]:f32, params[M,96]:u8, history[_]:i32, breakers?[_]:u8 ->
sample_bias(M~, n_vocab, n_bias) inout logits[M,n_vocab]:f32, params[M,96]:u8, ids[M,n_bias]:i32, values[M,n_bias]:f32 ->
sample_temp(M~, n_vocab) inout logits[M,n_vocab]:f32, params[M,96]:u8 ->
sample_mask(M~, n_vocab) inout logits[M,n_vocab]:f32, params[M,96]:u8, bitmask[_,_]:i32 ->
sample_topk(M~, n_vocab, n_cand) logits[M,n_vocab]:f32, params[M,96]:u8, inout cand_idx[M,n_cand]:i32, inout cand_val[M,n_cand]:f32 ->
sample_topp(M~, n_cand) inout cand_idx[M,n_cand]:i32, inout cand_val[M,n_cand]:f32, params[M,96]:u8 ->
sample_minp(M~, n_cand) inout cand_idx[M,n_cand]:i32, inout cand_val[M,n_cand]:f32, params[M,96]:u8 ->
sample_typical(M~, n_cand) inout cand_idx[M,n_cand]:i32, inout cand_val[M,n_cand]:f32, params[M,96]:u8 ->
sample_xtc(M~, n_cand) inout cand_idx[M,n_cand]:i32, inout cand_val[M,n_cand]:f32, params[M,96]:u8 ->
sample_pick(M~, n_cand) cand_idx[M,n_cand]:i32, cand_val[M,n_cand]:f32, params[M,96]:u8, inout token[M,1]:i32 ->
sample_draw(M~, n_vocab) logits[M,n_vocab]:f32, params[M,96]:u8, inout token[M,1]:i32 ->
sample_argmax(M~, n_vocab) logits[M,n_vocab]:f32, params[M,96]:u8, inout token[M,1]:i32 ->
sample_logprobs(M~, n_vocab, n_top) kept[M,n_vocab]:f32, params[M,96]:u8, token[M,1]:i32, given[M,1]:i32, inout logprob[M,1]:f32, inout rank[M,1]:i32, inout top_idx[M,n_top]:i32, inout top_val[M,n_top]:f32 ->
"""

STANDARD: dict[str, OpSchema] = {
    schema.op: schema for schema in (parse_schema(line) for line in _LINES.strip().splitlines())
}
