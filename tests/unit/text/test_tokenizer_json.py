"""A tokenizer from `tokenizer.json` behaves as the public one does with the same files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from unit.text.text_oracles import HARD_TEXTS, public_tokenizer, sentencepiece_of

from radiance_core.text import load_chat_template, load_tokenizer
from radiance_core.text.detokenizer import Detokenizer
from radiance_core.text.errors import TemplateError, TokenizerError
from radiance_core.text.tokenizer import Tokenizer

PREFIX = "tokenizer.ggml."
SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass
class Folder:
    """A checkpoint as the text layer sees it."""

    format: str = "safetensors"
    metadata: Mapping[str, object] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def side_file(self, name: str) -> bytes | None:
        return self.files.get(name)


@pytest.fixture(scope="module")
def byte_level(bpe_metadata: dict[str, Any]) -> Any:
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend = public_tokenizer(bpe_metadata, cut)
    # A token beyond the model's own, as fine-tunes add them.
    backend.add_special_tokens([AddedToken("<|extra é|>", normalized=False, special=True)])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    backend.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    return backend


@pytest.fixture(scope="module")
def llama_like(spm_metadata: dict[str, Any]) -> Any:
    """Put the trained SentencePiece vocabulary into the layout of Llama 2's tokenizer.json."""
    tokens = spm_metadata[PREFIX + "tokens"]
    types = spm_metadata[PREFIX + "token_type"]
    scores = spm_metadata[PREFIX + "scores"]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    normal = {token for token, type_ in zip(tokens, types, strict=True) if type_ == 1}
    merges = sorted(
        (-scores[vocab[token]], token[:cut], token[cut:])
        for token in normal
        for cut in range(1, len(token))
        if token[:cut] in normal and token[cut:] in normal
    )
    backend = Backend(
        models.BPE(
            vocab,
            [(left, right) for _, left, right in merges],
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.Prepend("\u2581"),
            normalizers.Replace(" ", "\u2581"),
        ]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = [
        AddedToken(token, special=True, normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in {2, 3}
    ]
    backend.add_special_tokens(special)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return backend


def test_byte_level_file(byte_level: Any) -> None:
    """Ids and texts equal those of the public tokenizer, specials on or off, added tokens too."""
    ours = Tokenizer.from_tokenizer_json(byte_level.to_str().encode())
    assert ours.vocab_size == byte_level.get_vocab_size()

    @SETTINGS
    @given(
        st.text(max_size=40),
        st.booleans(),
        st.lists(st.integers(0, ours.vocab_size - 1), max_size=15),
    )
    def check(text: str, special: bool, ids: list[int]) -> None:
        text = text.encode("utf-8", "replace").decode()
        expected = byte_level.encode(text, add_special_tokens=special).ids
        assert ours.encode(text, add_special_tokens=special) == expected
        for skip in (True, False):
            # The public decoder reads "é" of an added token as the byte 0xE9; a token's own
            # text is what it means.
            given_ids = [id_ for id_ in ids if ours.token_text(id_) != "<|extra é|>"]
            assert ours.decode(given_ids, skip_special_tokens=skip) == byte_level.decode(
                given_ids, skip_special_tokens=skip
            )

    check()
    for text in [*HARD_TEXTS, "a<tool>b<|extra é|>c<|im_end|>"]:
        expected = byte_level.encode(text, add_special_tokens=True).ids
        assert ours.encode(text, add_special_tokens=True) == expected
    extra = ours.id_of("<|extra é|>")
    assert extra is not None
    assert ours.token_bytes(extra) == "<|extra é|>".encode()


def test_plain_text_mode(byte_level: Any) -> None:
    """With ``parse_special`` off only the tokens that are not special are still matched."""
    ours = Tokenizer.from_tokenizer_json(byte_level.to_str().encode())
    text = "a<tool>b<|extra é|>c"
    ids = ours.encode(text, add_special_tokens=False, parse_special=False)
    assert ours.id_of("<tool>") in ids
    assert not ours.special_ids.intersection(ids)
    assert ours.decode(ids) == text


def test_sentencepiece_file(llama_like: Any, spm_metadata: dict[str, Any]) -> None:
    """Ids equal those of the public tokenizer; decoding equals SentencePiece's.

    The public byte-fallback decoder turns a whole run of byte tokens to U+FFFD when one byte is
    bad, SentencePiece only the bad bytes: the vocabulary is SentencePiece's, so its rule holds.
    """
    ours = Tokenizer.from_tokenizer_json(llama_like.to_str().encode(), {"bos_token": "<s>"})
    reference = sentencepiece_of(spm_metadata, dummy_prefix=True)
    plain = [id_ for id_ in range(ours.vocab_size) if id_ not in ours.special_ids]

    @SETTINGS
    @given(st.text(max_size=40), st.lists(st.sampled_from(plain), max_size=15))
    def check(text: str, ids: list[int]) -> None:
        text = text.encode("utf-8", "replace").decode()
        encoded = ours.encode(text, add_special_tokens=True)
        assert encoded == llama_like.encode(text, add_special_tokens=True).ids
        assert ours.decode(encoded) == llama_like.decode(encoded)
        assert ours.decode(ids) == reference.decode(ids)
        stream = Detokenizer(ours)
        assert "".join(map(stream.push, ids)) + stream.flush() == ours.decode(ids)

    check()
    assert ours.add_bos
    assert ours.encode_prompt("<s>ta")[:2] == [1, *ours.encode("ta", add_special_tokens=False)][:2]


def test_added_blanks(llama_like: Any) -> None:
    """An added token that is not special spells blanks with the mark, a special one does not."""
    backend = Backend.from_str(llama_like.to_str())
    backend.add_tokens([AddedToken("\u2581\u2581\u2581x")])
    backend.add_special_tokens([AddedToken("\u2581<end>", special=True)])
    ours = Tokenizer.from_tokenizer_json(backend.to_str().encode())
    assert ours.token_bytes(ours.vocab_size - 2) == b"   x"
    assert ours.token_bytes(ours.vocab_size - 1) == "\u2581<end>".encode()
    assert ours.decode([2, ours.vocab_size - 2]) == "  x"


def test_roles_and_ends(byte_level: Any) -> None:
    """Roles come from the configuration, ends from it, generation_config and known names."""
    data = byte_level.to_str().encode()
    config = {
        "bos_token": {"content": "<|begin|>", "special": True},
        "eos_token": "<tool>",
        "add_bos_token": False,
        "add_eos_token": True,
    }
    ours = Tokenizer.from_tokenizer_json(data, config, {"eos_token_id": [3, 4]})
    tool = ours.id_of("<tool>")
    assert ours.bos_id == 0
    assert ours.eos_ids == {tool, 1, 2, 3, 4}
    assert (ours.add_bos, ours.add_eos) == (False, True)
    assert ours.encode("a", add_special_tokens=True)[-1] == tool
    assert ours.special_texts() == {"bos_token": "<|begin|>", "eos_token": "<tool>"}


def test_harmony_message_end_is_no_turn_end(byte_level: Any) -> None:
    """Where <|return|> and <|call|> end a turn, <|end|> only ends a message within it."""
    backend = Backend.from_str(byte_level.to_str())
    backend.add_special_tokens([AddedToken(name, special=True) for name in ("<|end|>", "<|call|>")])
    ends = Tokenizer.from_tokenizer_json(backend.to_str().encode()).eos_ids
    assert backend.token_to_id("<|end|>") in ends
    backend.add_special_tokens([AddedToken("<|return|>", special=True)])
    ends = Tokenizer.from_tokenizer_json(backend.to_str().encode()).eos_ids
    assert backend.token_to_id("<|end|>") not in ends
    assert {backend.token_to_id("<|call|>"), backend.token_to_id("<|return|>")} <= ends


def test_loading_a_folder(byte_level: Any) -> None:
    """Side files give roles, ends and template; chat_template.jinja goes before the others."""
    folder = Folder(
        metadata={"eos_token_id": 7},
        files={
            "tokenizer.json": byte_level.to_str().encode(),
            "special_tokens_map.json": b'{"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}',
            "tokenizer_config.json": json.dumps(
                {
                    "eos_token": None,
                    "add_bos_token": False,
                    "chat_template": [
                        {"name": "tool_use", "template": "tools"},
                        {"name": "default", "template": "{{ bos_token }}config"},
                    ],
                }
            ).encode(),
        },
    )
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_ids == {1, 2, 7}
    assert not tokenizer.add_bos
    template = load_chat_template(folder, tokenizer)
    assert template is not None
    assert template.render([]) == "<|begin|>config"
    template.close()
    folder.files["chat_template.jinja"] = b"file"
    template = load_chat_template(folder, tokenizer)
    assert template is not None
    assert template.source == "file"
    folder.files["chat_template.jinja"] = b"\xff"
    with pytest.raises(TemplateError, match=r"chat_template.jinja: expected UTF-8 text, got"):
        load_chat_template(folder, tokenizer)


def test_loading_gguf(bpe_metadata: dict[str, Any]) -> None:
    """A GGUF checkpoint gives both from its keys; without a template there is none."""
    metadata = {**bpe_metadata, "tokenizer.chat_template.default": "{{ eos_token }}"}
    folder = Folder("gguf", metadata)
    template = load_chat_template(folder, load_tokenizer(folder))
    assert template is not None
    assert template.render([]) == "<|end_of_text|>"
    template.close()
    bare = Folder("gguf", bpe_metadata)
    assert load_chat_template(bare, load_tokenizer(bare)) is None


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("tokenizer.json", None, "tokenizer.json: expected beside the weights, got no such file"),
        ("tokenizer.json", b"{", "tokenizer.json: expected JSON, got"),
        ("tokenizer.json", b"[" * 100000, "tokenizer.json: expected JSON, got"),
        ("tokenizer.json", b"[]", "tokenizer.json: expected a JSON object, got list"),
        ("tokenizer.json", b"{}", "tokenizer.json: expected a file that `tokenizers` reads, got"),
        ("tokenizer_config.json", b"7", "tokenizer_config.json: expected a JSON object, got int"),
        ("tokenizer_config.json", b'{"eos_token": 7}', "eos_token: expected a token's text, got 7"),
        (
            "tokenizer_config.json",
            b'{"chat_template": 7}',
            "chat_template: expected a string or a list of named templates, got int",
        ),
        (
            "generation_config.json",
            b'{"eos_token_id": [9999999]}',
            "generation_config.json: eos_token_id: expected token ids below",
        ),
        ("generation_config.json", b'{"eos_token_id": "x"}', 'got "x"; the file is of another'),
    ],
)
def test_malformed_files(byte_level: Any, name: str, data: bytes | None, text: str) -> None:
    """A missing or damaged side file is refused by name, with what was expected and found."""
    folder = Folder(files={"tokenizer.json": byte_level.to_str().encode()})
    folder.files.pop(name, None)
    if data is not None:
        folder.files[name] = data
    with pytest.raises(TokenizerError) as raised:
        load_tokenizer(folder)
    assert text in str(raised.value)


def test_decoder_that_does_not_spell_bytes(byte_level: Any) -> None:
    """A vocabulary whose tokens do not spell bytes is refused, naming the decoder."""
    document = json.loads(byte_level.to_str())
    document["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(TokenizerError, match="expected ByteLevel, Metaspace or Replace, got WordP"):
        Tokenizer.from_tokenizer_json(json.dumps(document).encode())
