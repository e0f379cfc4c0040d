"""Public tokenizers to compare with, made from the same vocabulary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sentencepiece
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

pb: Any = sentencepiece_model_pb2

QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
HARD = st.text(
    st.one_of(
        st.sampled_from(" \n\t\r\u2581ab1é日🎉-='"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=60,
)
HARD_TEXTS = [
    "",
    " ",
    "a",
    "Hello, world!",
    "  leading and trailing  ",
    "1234567890 3.14159 1,000,000 0x1F 1st 2nd ½ ² ① ٣٤",
    "\t\ttabs\tand\n\n\nnewlines\r\n\r\n  mixed \n \n",
    " " * 3 + "x" + " " * 17 + "y" + " " * 70 + "z",
    "it's they've I'LL we'D can'T ''s 're",
    "🎉🏳️‍🌈👩‍👩‍👧‍👦 e\u0301 é ﬁ Å\u030a \u200b\u200d\ufeff",
    "日本語のテキスト。中文，测试！한국어 텍스트 ประเทศไทย",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם हिन्दी में पाठ",
    "def f(x):\n    return {k: v**2 for k, v in x.items() if k != 'a'}  #\n\n\tif x>=3&&y||!z;",
    "\x00\x01\x02\x1b[31mred\x7f\x80\x9f\u2028\u2029\ufffd",
    "supercalifragilistic" * 20,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ababababababab-----====####!!!!????....,,,,",
    "http://example.com/a?b=c&d=%20#e user@host \\path\\to\\file",
    "MixedCaseWords HTTPServer iPhone ÀÉÎÕÜ ЁЖИК ёжик ΑΒΓ αβγ ẞß",
    "\u2581literal mark \u2581\u2581 and \U00010400\U0001f600\U000e0041",
]


def sentencepiece_of(metadata: Mapping[str, Any], *, dummy_prefix: bool) -> Any:
    """Return the SentencePiece processor whose model holds a GGUF file's pieces."""
    model = pb.ModelProto()
    rows = zip(
        metadata["tokenizer.ggml.tokens"],
        metadata["tokenizer.ggml.scores"],
        metadata["tokenizer.ggml.token_type"],
        strict=True,
    )
    unk_id = metadata["tokenizer.ggml.unknown_token_id"]
    for id_, (text, score, type_) in enumerate(rows):
        piece = model.pieces.add()
        piece.piece = text.replace(" ", "\u2581") if type_ == 4 else text
        piece.score = score
        piece.type = 2 if id_ == unk_id else type_
    model.trainer_spec.model_type = pb.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(model.pieces)
    for role in ("bos", "eos", "pad", "unk"):
        name = {"pad": "padding", "unk": "unknown"}.get(role, role)
        id_ = metadata.get(f"tokenizer.ggml.{name}_token_id", -1)
        setattr(model.trainer_spec, f"{role}_id", id_)
        if id_ >= 0:
            setattr(model.trainer_spec, f"{role}_piece", model.pieces[id_].piece)
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = dummy_prefix
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model.SerializeToString())
    return processor


def sentencepiece_metadata(
    texts: Sequence[str], vocab_size: int, *, user_defined: Sequence[str] = ()
) -> dict[str, Any]:
    """Train a SentencePiece BPE model and return it as the keys of a GGUF file."""
    import io

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(texts),
        model_writer=out,
        vocab_size=vocab_size,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.99,
        user_defined_symbols=list(user_defined),
        allow_whitespace_only_pieces=True,
        minloglevel=2,
        num_threads=1,
    )
    model = pb.ModelProto()
    model.ParseFromString(out.getvalue())
    prefix = "tokenizer.ggml."
    return {
        prefix + "model": "llama",
        prefix + "pre": "default",
        prefix + "tokens": [
            piece.piece.replace("\u2581", " ") if piece.type == 4 else piece.piece
            for piece in model.pieces
        ],
        prefix + "scores": [float(piece.score) for piece in model.pieces],
        prefix + "token_type": [int(piece.type) for piece in model.pieces],
        prefix + "bos_token_id": 1,
        prefix + "eos_token_id": 2,
        prefix + "unknown_token_id": 0,
    }


def byte_level_metadata(texts: Sequence[str], vocab_size: int, pre: str) -> dict[str, Any]:
    """Train a byte-level BPE vocabulary with a family's cut and return it as GGUF keys."""
    import json

    from tokenizers import Tokenizer, pre_tokenizers, trainers
    from tokenizers.models import BPE

    from radiance_core.text.pretokenizers import PRE_TOKENIZERS

    backend = Tokenizer(BPE())
    backend.pre_tokenizer = PRE_TOKENIZERS[pre].build()
    special = ["<|begin|>", "<|end_of_text|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    prefix = "tokenizer.ggml."
    return {
        prefix + "model": "gpt2",
        prefix + "pre": pre,
        prefix + "tokens": tokens,
        prefix + "token_type": [3 if token in special else 1 for token in tokens],
        prefix + "merges": [" ".join(merge) for merge in model["merges"]],
        prefix + "bos_token_id": 0,
        prefix + "eos_token_id": 1,
    }


def public_tokenizer(metadata: Mapping[str, Any], build: Any, normalizer: Any = None) -> Any:
    """Return a `tokenizers` tokenizer put together from GGUF keys in the plainest way."""
    from tokenizers import AddedToken, Tokenizer, decoders
    from tokenizers.models import BPE

    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    backend = Tokenizer(BPE({token: id_ for id_, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = build
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    types = metadata["tokenizer.ggml.token_type"]
    backend.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, type_ in zip(tokens, types, strict=True)
            if type_ == 3
        ]
    )
    return backend


def inner_test(check: Any) -> Callable[..., None]:
    """Return the plain function inside a hypothesis test, to run it on chosen inputs too."""
    found: Callable[..., None] = check.hypothesis.inner_test
    return found
