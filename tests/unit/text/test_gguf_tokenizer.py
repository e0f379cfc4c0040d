"""A tokenizer rebuilt from GGUF keys encodes and decodes as the model's own one."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processor_time import least
from tokenizers import pre_tokenizers
from unit.text.text_oracles import (
    HARD,
    HARD_TEXTS,
    QUICK,
    inner_test,
    public_tokenizer,
    sentencepiece_metadata,
    sentencepiece_of,
)

from radiance_core.text.pretokenizers import PRE_TOKENIZERS
from radiance_core.text.score_merges import score_merges
from radiance_core.text.tokenizer import Tokenizer

PREFIX = "tokenizer.ggml."


@pytest.fixture(scope="module")
def smollm_public(smollm_file: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    loaded = transformers.AutoTokenizer.from_pretrained(
        smollm_file.parent, gguf_file=smollm_file.name
    )
    # transformers 5.24 knows no cut for `smollm` and takes GPT-2's, so it leaves digits such as
    # "½" joined to the blank before them. The model's own tokenizer.json cuts digits first.
    loaded.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return loaded


@pytest.fixture(scope="module")
def smollm(smollm_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_gguf(smollm_metadata)


@pytest.fixture(scope="module")
def gemma_public(gemma_metadata: dict[str, Any]) -> Any:
    return sentencepiece_of(gemma_metadata, dummy_prefix=False)


@pytest.fixture(scope="module")
def gemma(gemma_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_gguf(gemma_metadata)


class TestSmolLM:
    """Against `transformers` reading the same file."""

    def test_hard_texts(self, smollm_public: Any, smollm: Tokenizer) -> None:
        """Ids and text back are equal, special tokens inside the text included."""
        chat = "<|im_start|>user\nhi <|im_end|>x<file_sep>\n"
        for text in [*HARD_TEXTS, chat]:
            ids = smollm.encode(text, add_special_tokens=False)
            assert ids == smollm_public(text, add_special_tokens=False)["input_ids"], text
            for skip in (True, False):
                expected = smollm_public.decode(ids, skip_special_tokens=skip)
                assert smollm.decode(ids, skip_special_tokens=skip) == expected

    def test_random_texts(self, smollm_public: Any, smollm: Tokenizer) -> None:
        """Ids are equal on random Unicode."""

        @QUICK
        @given(HARD)
        def check(text: str) -> None:
            expected = smollm_public(text, add_special_tokens=False)["input_ids"]
            assert smollm.encode(text, add_special_tokens=False) == expected

        check()

    def test_random_ids(self, smollm_public: Any, smollm: Tokenizer) -> None:
        """Any ids decode to the same text, whatever bytes they come to."""

        @QUICK
        @given(st.lists(st.integers(0, smollm.vocab_size - 1), max_size=20), st.booleans())
        def check(ids: list[int], skip: bool) -> None:
            expected = smollm_public.decode(ids, skip_special_tokens=skip)
            assert smollm.decode(ids, skip_special_tokens=skip) == expected

        check()

    def test_roles(self, smollm: Tokenizer) -> None:
        """The file's roles, and end tokens that it does not declare, are known."""
        assert smollm.bos_id == 1
        assert smollm.eos_ids == {0, 2}
        assert not smollm.add_bos
        assert smollm.special_texts()["eos_token"] == "<|im_end|>"
        assert smollm.id_of("<|im_start|>") == 1
        assert smollm.vocab_size == 49152

    def test_special_text_as_plain_text(self, smollm: Tokenizer) -> None:
        """With ``parse_special`` off no special id comes out of text, and the text is kept."""
        text = "a<|im_end|><|im_start|>b"
        ids = smollm.encode(text, add_special_tokens=False, parse_special=False)
        assert not smollm.special_ids.intersection(ids)
        assert smollm.decode(ids) == text
        assert smollm.special_ids.intersection(smollm.encode(text, add_special_tokens=False))


class TestGemma:
    """Against SentencePiece itself with the file's pieces, which is the model's definition.

    transformers 5.24 differs on runs of more than 31 blanks: it merges them as BPE would, where
    SentencePiece takes user-defined pieces longest first.
    """

    def test_texts(self, gemma_public: Any, gemma: Tokenizer) -> None:
        """Ids are equal on hard and on random texts, and decode to the text."""

        @QUICK
        @given(HARD)
        def check(text: str) -> None:
            ids = gemma.encode(text, add_special_tokens=False, parse_special=False)
            assert ids == gemma_public.encode(text)
            assert gemma.decode(ids) == text.replace("\u2581", " ")

        for text in HARD_TEXTS:
            inner_test(check)(text)
        check()

    def test_ids(self, gemma_public: Any, gemma: Tokenizer) -> None:
        """Any ordinary ids decode to the same text, one U+FFFD for each bad byte included."""
        plain = st.integers(0, gemma.vocab_size - 1).filter(
            lambda id_: id_ not in gemma.special_ids
        )

        @QUICK
        @given(st.lists(st.one_of(st.sampled_from(list(gemma.spelling.byte_ids)), plain)))
        def check(ids: list[int]) -> None:
            assert gemma.decode(ids) == gemma_public.decode(ids)

        check()

    def test_turns(self, gemma: Tokenizer) -> None:
        """The chat end token counts as an end though the file declares only ``<eos>``."""
        assert gemma.eos_ids == {1, 106}
        assert gemma.add_bos
        assert gemma.encode("a", add_special_tokens=True)[0] == 2


class TestTrainedSentencePiece:
    """Against SentencePiece with models trained here, with and without the space prefix."""

    @pytest.mark.parametrize("prefixed", [True, False])
    def test_texts(self, spm_metadata: dict[str, Any], prefixed: bool) -> None:
        """Ids are those of SentencePiece, and decoding is its decoding."""
        public = sentencepiece_of(spm_metadata, dummy_prefix=prefixed)
        metadata = {**spm_metadata, PREFIX + "add_space_prefix": prefixed}
        if prefixed:
            # With a prefix a user-defined piece starts a new stretch here and in the public
            # converters, which SentencePiece alone would not do: leave those pieces out.
            types = [1 if type_ == 4 else type_ for type_ in metadata[PREFIX + "token_type"]]
            tokens = [text.replace(" ", "\u2581") for text in metadata[PREFIX + "tokens"]]
            metadata |= {PREFIX + "token_type": types, PREFIX + "tokens": tokens}
            scores = [
                -9000.0 - id_ if type_ == 4 else score
                for id_, (score, type_) in enumerate(
                    zip(
                        metadata[PREFIX + "scores"],
                        spm_metadata[PREFIX + "token_type"],
                        strict=True,
                    )
                )
            ]
            metadata[PREFIX + "scores"] = scores
            public = sentencepiece_of(metadata, dummy_prefix=True)
        ours = Tokenizer.from_gguf(metadata)
        plain = [id_ for id_ in range(ours.vocab_size) if id_ not in ours.special_ids]

        @QUICK
        @given(HARD, st.lists(st.sampled_from(plain), max_size=12))
        def check(text: str, ids: list[int]) -> None:
            assert ours.encode(text, add_special_tokens=False, parse_special=False) == (
                public.encode(text)
            )
            assert ours.decode(ids) == public.decode(ids)

        for text in HARD_TEXTS:
            inner_test(check)(text, [])
        check()

    def test_decoding_with_prefix(self, spm_metadata: dict[str, Any]) -> None:
        """Decoding with a prefix is SentencePiece's too, user-defined blanks first or not."""
        public = sentencepiece_of(spm_metadata, dummy_prefix=True)
        ours = Tokenizer.from_gguf(spm_metadata)
        plain = [id_ for id_ in range(ours.vocab_size) if id_ not in ours.special_ids]
        blanks = [id_ for id_ in plain if ours.token_bytes(id_)[:1] == b" "]
        some = st.one_of(st.sampled_from(blanks), st.sampled_from(plain))

        @QUICK
        @given(st.lists(some, max_size=12))
        def check(ids: list[int]) -> None:
            assert ours.decode(ids) == public.decode(ids)

        check()

    def test_prefix_after_special(self, spm_metadata: dict[str, Any]) -> None:
        """Each stretch between special tokens is encoded as a text of its own, prefix and all."""
        public = sentencepiece_of(spm_metadata, dummy_prefix=True)
        ours = Tokenizer.from_gguf(spm_metadata)
        ids = ours.encode("<s>ab</s>ta", add_special_tokens=False)
        assert ids == [1, *public.encode("ab"), 2, *public.encode("ta")]

    def test_defaults(self, spm_metadata: dict[str, Any]) -> None:
        """A file that does not say has BOS and the space prefix, and no EOS."""
        ours = Tokenizer.from_gguf(spm_metadata)
        assert (ours.add_bos, ours.add_eos, ours.spelling.drop_first_space) == (True, False, True)
        both = {**spm_metadata, PREFIX + "add_bos_token": False, PREFIX + "add_eos_token": True}
        ids = Tokenizer.from_gguf(both).encode("a", add_special_tokens=True)
        assert ids[0] != 1
        assert ids[-1] == 2


@QUICK
@given(st.lists(st.text("ab▁é🎉", min_size=1, max_size=6), unique=True, max_size=60))
def test_score_merges_are_all_cuts(texts: list[str]) -> None:
    """The sieve loses no cut and adds none, and keeps the order."""
    known = set(texts)
    every = [(text[:cut], text[cut:]) for text in texts for cut in range(1, len(text))]
    assert score_merges(texts) == [pair for pair in every if known.issuperset(pair)]


def test_whole_words_are_not_merged(bpe_metadata: dict[str, Any]) -> None:
    """A piece that is a token is that token for Llama 3, though no merges lead to it."""
    tokens = [*bpe_metadata[PREFIX + "tokens"], "xqxqx"]
    types = [*bpe_metadata[PREFIX + "token_type"], 1]
    changed = {**bpe_metadata, PREFIX + "tokens": tokens, PREFIX + "token_type": types}
    llama = Tokenizer.from_gguf(changed)
    assert llama.encode("xqxqx", add_special_tokens=False) == [len(tokens) - 1]
    qwen = Tokenizer.from_gguf({**changed, PREFIX + "pre": "qwen2"})
    assert len(qwen.encode("xqxqx", add_special_tokens=False)) > 1


def test_public_byte_level(bpe_metadata: dict[str, Any], bpe: Tokenizer) -> None:
    """A trained byte-level vocabulary decodes any ids as the public decoder does."""
    public = public_tokenizer(bpe_metadata, PRE_TOKENIZERS["llama-bpe"].build())

    @QUICK
    @given(st.lists(st.integers(0, bpe.vocab_size - 1), max_size=30), st.booleans())
    def check(ids: list[int], skip: bool) -> None:
        expected = public.decode(ids, skip_special_tokens=skip)
        assert bpe.decode(ids, skip_special_tokens=skip) == expected

    check()


def test_prompt_has_one_bos(bpe: Tokenizer) -> None:
    """A template that writes BOS gets no second one, and one that does not gets it."""
    assert bpe.add_bos
    for rendered in ("<|begin|>hi", "hi"):
        ids = bpe.encode_prompt(rendered)
        assert ids.count(0) == 1
        assert ids[0] == 0


def test_surrogates_are_text(bpe: Tokenizer) -> None:
    """A lone surrogate, which JSON can carry, counts as U+FFFD and is no crash."""
    assert bpe.decode(bpe.encode("a\ud800b", add_special_tokens=False)) == "a\ufffdb"


@pytest.mark.parametrize(
    ("fixture", "seconds"), [("smollm_metadata", 0.3), ("gemma_metadata", 1.5)]
)
def test_building_is_quick(request: pytest.FixtureRequest, fixture: str, seconds: float) -> None:
    """A vocabulary of a real size is built in processor time that start-up can afford.

    Twice the time measured on a quiet machine is allowed, so that only a change of order fails.
    """
    metadata = request.getfixturevalue(fixture)
    assert least(lambda: Tokenizer.from_gguf(metadata), 2 * seconds) < 2 * seconds


def test_trained_here_is_not_trivial() -> None:
    """The trained models merge, so that the comparisons above are not of single characters."""
    metadata = sentencepiece_metadata(["the cat sat on the mat " * 3] * 20, 280)
    ours = Tokenizer.from_gguf(metadata)
    assert len(ours.encode("the cat", add_special_tokens=False)) < 7
