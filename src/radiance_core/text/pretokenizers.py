"""How each family of byte-level vocabularies cuts text before merging, by `tokenizer.ggml.pre`.

The cuts are part of a vocabulary's definition: they are what each model's public
`tokenizer.json` states. A wrong cut gives plausible ids that the model never saw, so a name
that is not in the table is refused rather than guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, normalizers, pre_tokenizers

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

# The cased letters (Lu, Ll, Lt) of the Unicode version that DeepSeek's first vocabulary was made
# with, as code points: several of them do not survive normalisation by an editor.
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-"
    "\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183"
    "\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"
    "\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_MARKS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e‘-‟\u3000-。"
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_ASCII_MARKS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"


def _words(number: str, letters: str = r"\p{L}", tail: str = r"[\r\n]*") -> str:
    """Spell the cl100k-style cut, which models vary in how digits, letters and tails group."""
    others = r" ?[^\s\p{L}\p{N}]+" if letters == r"\p{L}" else r" ?[^\s\p{L}\p{M}\p{N}]+"
    return f"{_CONTRACTIONS}|{_LEAD}[{letters}]+|{number}|{others}{tail}|{_SPACES}"


def _cased(number: str, suffix: str) -> str:
    """Spell the o200k-style cut, which also parts words where lower case meets upper case."""
    lower = f"{_LEAD}[{_UPPER}]*[{_LOWER}]+{suffix}"
    upper = f"{_LEAD}[{_UPPER}]+[{_LOWER}]*{suffix}"
    return rf"{lower}|{upper}|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One family's cut.

    Args:
        cuts: regular expressions applied in order, each match a piece of its own; names in
            angle brackets stand for a ready-made cut (see ``_step``).
        gpt2: whether GPT-2's own cut follows.
        nfc: whether text is put into Unicode form C first.
        whole_words: whether a piece that is itself a token is taken without merging.
        add_bos: whether prompts start with BOS when the file does not say.
    """

    cuts: tuple[str, ...] = ()
    gpt2: bool = False
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Return the cut as a ``tokenizers`` object that ends in the byte alphabet."""
        steps = [_step(cut) for cut in self.cuts]
        if "<gpt2>" not in self.cuts:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.gpt2))
        return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        """Return the normaliser, or ``None`` where text is taken as it is."""
        return normalizers.NFC() if self.nfc else None


def _step(cut: str) -> pre_tokenizers.PreTokenizer:
    """Return one cut as a ``tokenizers`` object."""
    match cut:
        case "<digits>":
            return pre_tokenizers.Digits(individual_digits=True)
        case "<digit runs>":
            return pre_tokenizers.Digits(individual_digits=False)
        case "<marks>":
            return pre_tokenizers.Punctuation(behavior="contiguous")
        case "<gpt2>":
            return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Split(Regex(cut), behavior="isolated")


_GPT2 = PreTokenizer(gpt2=True)
_GPT2_NFC = PreTokenizer(gpt2=True, nfc=True)
_DIGITS_GPT2 = PreTokenizer(("<digits>",), gpt2=True)
_LLAMA3 = PreTokenizer((_words(r"\p{N}{1,3}"),), whole_words=True, add_bos=True)
_CL100K = PreTokenizer((_words(r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_words(r"\p{N}"),), nfc=True)
_GPT4O = PreTokenizer((_cased(r"\p{N}{1,3}", f"{_CONTRACTIONS}?"),))

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType({
    "default": _GPT2,
    "gpt-2": _GPT2,
    "gpt2": _GPT2,
    "phi-2": _GPT2,
    "jais": _GPT2,
    "mpt": _GPT2_NFC,
    "olmo": _GPT2_NFC,
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "refact": _DIGITS_GPT2,
    "codeshell": _DIGITS_GPT2,
    "command-r": PreTokenizer(("<digits>",), gpt2=True, nfc=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "chatglm-bpe": _CL100K,
    "glm4": _CL100K,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": PreTokenizer((_words(r"\p{N}", r"\p{L}\p{M}"),), nfc=True),
    "gpt-4o": _GPT4O,
    "llama4": _GPT4O,
    "tekken": PreTokenizer((_cased(r"\p{N}", ""),), whole_words=True, add_bos=True),
    "falcon": PreTokenizer(("<marks>", "<gpt2>", "<digit runs>", "[0-9][0-9][0-9]")),
    "deepseek-llm": PreTokenizer((
        r"[\r\n]",
        rf"\s?[{_DEEPSEEK_LETTERS}]+",
        rf"\s?[{_DEEPSEEK_MARKS}]+",
        # The definition is \s+$; tried only where a run begins, a long run costs its length once.
        r"(?<!\s)\s+$",
        _DEEPSEEK_CJK,
        "<digits>",
    )),
    "deepseek-coder": PreTokenizer((
        r"[\r\n]",
        r"\s?\p{L}+",
        r"\s?\p{P}+",
        _DEEPSEEK_CJK,
        "<digits>",
    )),
    "deepseek-v3": PreTokenizer((
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        rf"{_ASCII_MARKS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
    )),
})  # fmt: skip
