"""The sizes of a decoder, read strictly from both kinds of model file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from radiance_abi.architectures import Limits, Raw
from radiance_abi.errors import ConfigurationError

HF_WITHOUT_MEANING = (
    # for training, generation and bookkeeping; inference of one model never reads them
    "_attn_implementation*",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "quantization_config",  # the reader of the file judged it
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
)
GGUF_WITHOUT_MEANING = ("general.*", "tokenizer.*", "quantize.*", "split.*")


MOST_LAYERS = 4096  # a graph is built layer by layer, before any weight is looked for


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of a decoder. ``max_context``: trained context in tokens. ``eps``: of the RMS norms."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_vocab: int
    max_context: int
    eps: float

    def __post_init__(self) -> None:
        for name in ("n_layer", "n_embd", "n_head", "n_head_kv", "head_dim", "n_ff", "n_vocab"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(
                    f"model configuration: expected {name} above 0, got {getattr(self, name)}"
                )
        if self.n_layer > MOST_LAYERS:
            raise ConfigurationError(
                f"model configuration: expected n_layer of at most {MOST_LAYERS}, got "
                f"{self.n_layer}; the configuration is damaged"
            )
        if self.n_head % self.n_head_kv:
            raise ConfigurationError(
                "model configuration: expected the query heads to be a multiple of the key and "
                f"value heads, got {self.n_head} and {self.n_head_kv}"
            )
        if self.max_context <= 0:
            raise ConfigurationError(
                "model configuration: expected a trained context above 0 tokens, got "
                f"{self.max_context}"
            )

    def limits(self, max_context: int | None = None) -> Limits:
        """Return what the core needs; ``max_context`` where it differs from the trained one."""
        return Limits(max_context or self.max_context, self.n_vocab, self.n_layer, self.n_embd)


def gguf_dimensions(raw: Raw, arch: str) -> Dimensions:
    """Read the sizes of a GGUF file whose keys begin with ``arch``.

    Raises:
        ConfigurationError: a size is missing, of another type or impossible.
    """
    raw.ignore(*GGUF_WITHOUT_MEANING)
    raw.expect(f"{arch}.expert_count", 0)
    raw.expect(f"{arch}.expert_used_count", 0)
    n_head = raw.need(f"{arch}.attention.head_count", int)
    n_embd = raw.need(f"{arch}.embedding_length", int)
    head_dim = raw.get(f"{arch}.attention.key_length", int) or _share(n_embd, n_head, arch)
    raw.expect(f"{arch}.attention.value_length", head_dim)
    table = raw.tensor("token_embd.weight")
    stated = raw.get(f"{arch}.vocab_size", int)
    if table is None and stated is None:
        raise ConfigurationError(
            f"model configuration: expected {arch}.vocab_size or the tensor token_embd.weight, got "
            "neither; the file has no token embedding"
        )
    return Dimensions(
        n_layer=raw.need(f"{arch}.block_count", int),
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=raw.get(f"{arch}.attention.head_count_kv", int, n_head),
        head_dim=head_dim,
        n_ff=raw.need(f"{arch}.feed_forward_length", int),
        n_vocab=table[0] if table else stated,
        max_context=raw.need(f"{arch}.context_length", int),
        eps=raw.need(f"{arch}.attention.layer_norm_rms_epsilon", float),
    )


def hf_dimensions(raw: Raw, defaults: Mapping[str, Any] | None = None) -> Dimensions:
    """Read the sizes of a config.json.

    Args:
        raw: the configuration.
        defaults: values of keys that this family's files leave out.

    Raises:
        ConfigurationError: a size is missing, of another type or impossible.
    """
    raw.ignore(*HF_WITHOUT_MEANING)
    known = defaults or {}

    def read(key: str, kind: type) -> Any:
        return raw.get(key, kind, known[key]) if key in known else raw.need(key, kind)

    n_head = read("num_attention_heads", int)
    n_embd = read("hidden_size", int)
    head_dim = raw.get("head_dim", int, known.get("head_dim"))
    return Dimensions(
        n_layer=read("num_hidden_layers", int),
        n_embd=n_embd,
        n_head=n_head,
        n_head_kv=raw.get("num_key_value_heads", int, known.get("num_key_value_heads", n_head)),
        head_dim=_share(n_embd, n_head, "head_dim") if head_dim is None else head_dim,
        n_ff=read("intermediate_size", int),
        n_vocab=read("vocab_size", int),
        max_context=read("max_position_embeddings", int),
        eps=read("rms_norm_eps", float),
    )


def hf_windows(raw: Raw, n_layer: int, window: int) -> tuple[int, ...] | None:
    """Read layer_types: the keys that each layer sees, 0 for all; None when the key is absent.

    Raises:
        ConfigurationError: another count than layers, an unknown type, or a window without a size.
    """
    types = raw.get("layer_types", list)
    if types is None:
        return None
    known = ("full_attention", "sliding_attention")
    if len(types) != n_layer or any(t not in known for t in types):
        raise ConfigurationError(
            f"layer_types: expected {n_layer} of {' or '.join(known)}, got {len(types)}: "
            f"{', '.join(sorted({str(t) for t in types}))}"
        )
    if "sliding_attention" in types and window <= 0:
        raise ConfigurationError(
            "sliding_window: expected a size above 0, since layer_types has sliding_attention, "
            "got none"
        )
    return tuple(window if t == "sliding_attention" else 0 for t in types)


def _share(n_embd: int, n_head: int, where: str) -> int:
    if n_head <= 0 or n_embd % n_head:
        raise ConfigurationError(
            f"{where}: expected the size of a head to be stated, or a width that divides among the "
            f"heads; got width {n_embd} and {n_head} heads"
        )
    return n_embd // n_head
