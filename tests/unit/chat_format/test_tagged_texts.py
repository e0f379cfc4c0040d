"""Arguments written raw between marks: their patterns, and what the marks cannot tell apart."""

import json
import random
import re

import pytest
from unit.chat_format.families import SPECIAL
from unit.chat_format.vocabulary import Bytes, taken
from unit.constrain.vocabulary import VOCABULARY as SMALL
from unit.constrain.vocabulary import walk

from radiance_core.chat_format.format import ChatFormat
from radiance_core.chat_format.grammar import answer_grammar
from radiance_core.chat_format.named import FORMATS
from radiance_core.chat_format.parser import AnswerParser
from radiance_core.chat_format.tagged_grammar import SchemaNotServed, patterns_of
from radiance_core.chat_format.tools import Tool, ToolChoice
from radiance_core.constrain.compiler import Compiler
from radiance_core.constrain.errors import ConstraintError

BYTES = Bytes(SPECIAL)
TAGGED = ["qwen3-coder", "glm"]


@pytest.fixture(scope="module")
def compiler():
    made = Compiler(SMALL)
    yield made
    made.close()


def grammar(name, properties):
    schema = {"type": "object", "properties": properties, "required": list(properties),
              "additionalProperties": False}  # fmt: skip
    tool = Tool("f", schema)
    choice = ToolChoice("required", (tool,), (tool,), False)
    form = ChatFormat(tools=FORMATS[name])
    return answer_grammar(form, choice, {"f": schema}, inside_reasoning=False)


def written(name, key, text):
    form = FORMATS[name]
    pair = f"{form.key_open}{key}{form.key_close}{text}{form.value_close}"
    return f"{form.opening}f{form.name_end}{pair}{form.call_close}"


def arguments(name, schema, text):
    parser = AnswerParser(ChatFormat(tools=FORMATS[name]), (Tool("f", schema),))
    events = [*parser.feed(text), *parser.finish(False)]
    return json.loads("".join(getattr(event, "text", "") for event in events))


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize(
    ("pattern", "whole", "refused"),
    [
        (r"^\/api$", ["/api"], ["api", "\\/api", "x/api"]),
        ("^a/b$", ["a/b"], ["ab", "a\\/b"]),
        (r"^[/]\\/$", ["/\\/"], ["//"]),
        (r"^x\\$", ["x\\"], ["x", "x\\\\", "x\\a"]),
        (r"^x\$", ["x$", "x$y"], ["x"]),
        ("^a\nb$", ["a\nb"], ["ab", "a b"]),
        ('^a\nX: "Z"$', ['a\nX: "Z"'], ["a", "Z"]),
        ("^a$|^b$", ["a", "b"], ["ab", "c"]),
        ("^a|b$", ["a", "ax", "xb"], ["xa", "bx"]),
        ("a#|//", ["xa#", "//y"], ["a", "/"]),
    ],
)
def test_patterns_hold_as_they_are_written(name, pattern, whole, refused):
    """Slashes, backslashes, line breaks and anchors of a pattern mean what they mean in it."""
    made = grammar(name, {"q": {"type": "string", "pattern": pattern}})
    for text in whole:
        assert taken(made, written(name, "q", text), BYTES) == "whole", text
    for text in refused:
        assert taken(made, written(name, "q", text), BYTES).startswith("refused"), text


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ('^a)\\/ | "Z" #', "a ')' closes nothing"),
        ("(a", "a '(' is not closed"),
        ("[a", "a '[' is not closed"),
        ("a\\", "it ends within an escape"),
        ("(?i)a", "flags like '(?i)' are not served"),
        ("(?x:a #)\n)", "flags like '(?x:' are not served"),
    ],
)
def test_a_pattern_that_is_not_whole_is_refused(pattern, words):
    """What could reach out of its expression is refused by its path and with the reason."""
    with pytest.raises(SchemaNotServed, match=re.escape(words)) as caught:
        grammar("qwen3-coder", {"q": {"type": "string", "pattern": pattern}})
    assert caught.value.path == "properties.q.pattern"
    assert "properties.q.pattern: expected a whole regular expression, got" in str(caught.value)


def random_pattern(dice, depth=0):
    if depth > 3 or dice.random() < 0.4:
        return dice.choice(["a", "b", "/", r"\/", r"\\", "#", '"', "\n", " ", "<", "[ab/]", "[^<]",
                            "[0-9]", r"[\]|]", "-", "&", "~", r"\n", r"\|"])  # fmt: skip
    one, two = (random_pattern(dice, depth + 1) for _ in range(2))
    return dice.choice([f"{one}{two}", f"(?:{one}|{two})", f"({one})?", f"(?:{one}){{1,2}}"])


@pytest.mark.parametrize("name", TAGGED)
def test_walks_obey_random_patterns(name, compiler):
    """Each text that a random walk writes is one in which the pattern is found."""
    seed = random.randrange(2**32)
    dice, walks = random.Random(seed), 0
    for _ in range(25):
        pattern = f"^{random_pattern(dice)}$"
        if dice.random() < 0.3:
            pattern += f"|^{random_pattern(dice)}$"
        schema = {"properties": {"q": {"type": "string", "pattern": pattern}}}
        made = grammar(name, schema["properties"])
        source = compiler.compile_now("answer", json.dumps({"answer": made}))
        for _ in range(2):
            data, ended = walk(source, dice.randrange(2**32), 400)
            if ended:
                text = arguments(name, schema, data.decode())["q"]
                # At $ Python also allows a last line break.
                assert re.search(pattern.replace("$", r"\Z"), text), (seed, pattern, text)
                walks += 1
    assert walks > 20, seed


@pytest.mark.parametrize("name", TAGGED)
def test_random_brackets_never_leave_their_expression(name, compiler):
    """A random pattern is refused, or means what it means alone: compiled alone it is valid too."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    pieces = ["a", "(", ")", "[", "]", "\\", "/", "|", "*", "?", "{", "#", '"', "\n", ":"]
    for _ in range(60):
        pattern = "".join(dice.choices(pieces, k=dice.randrange(1, 7)))
        try:
            made = grammar(name, {"q": {"type": "string", "pattern": pattern}})
            compiler.compile_now("answer", json.dumps({"answer": made}))
        except (SchemaNotServed, ConstraintError):
            continue
        try:
            compiler.compile_now("regex", pattern)
        except ConstraintError as err:
            pytest.fail(f"{(seed, pattern)}: {err}")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("qwen3-coder", "a>b"), ("qwen3-coder", " q"), ("qwen3-coder", "q\n"),
        ("qwen3-coder", "<x>"), ("qwen3-coder", "</parameter>"), ("qwen3-coder", ""),
        ("glm", "a</arg_key>\n<arg_value>"), ("glm", "q "),
    ],
)  # fmt: skip
def test_names_that_marks_would_cut_are_refused(name, key):
    """A name that could not be read back is refused by its path."""
    with pytest.raises(SchemaNotServed, match="expected a name without white space") as caught:
        grammar(name, {key: {"type": "string"}})
    assert caught.value.path == f"properties.{key}"


@pytest.mark.parametrize("name", TAGGED)
def test_values_that_marks_would_cut_are_refused(name):
    """A value with the closing mark, or one that reads as another type, is refused by its path."""
    close = FORMATS[name].value_close.strip()
    for said in ({"enum": ["a", f"x{close}"]}, {"const": close}, {"enum": ["1", 2]}):
        with pytest.raises(SchemaNotServed, match="expected values that can be told") as caught:
            grammar(name, {"q": said})
        assert caught.value.path == "properties.q"


@pytest.mark.parametrize("name", TAGGED)
def test_odd_names_and_values_that_are_served_are_read_back(name):
    """Quotes, spaces, letters of marks: what is written is what is read."""
    for key in ("a b", 'a"b', "x/y", "é", "a<", "<|im_end|>" if name == "glm" else "q"):
        for value in ("", " a ", "a\n", "\na", "</", 'a"\\', "null", "1"):
            properties = {key: {"type": "string", "enum": [value, "other"]}}
            text = written(name, key, value)
            assert taken(grammar(name, properties), text, BYTES) == "whole", (key, value)
            assert arguments(name, {"properties": properties}, text) == {key: value}


def test_length_holds_beside_a_pattern():
    """A pattern does not put a length out of force."""
    made = grammar("glm", {"q": {"type": "string", "pattern": "^a+$", "maxLength": 2}})
    for text in ("a", "aa"):
        assert taken(made, written("glm", "q", text), BYTES) == "whole"
    assert taken(made, written("glm", "q", "aaa"), BYTES).startswith("refused")


@pytest.mark.parametrize("name", TAGGED)
def test_a_text_may_end_before_its_longest(name):
    """A text shorter than it may be ends like any other, and no text holds its closing mark."""
    close = FORMATS[name].value_close.strip()
    for said in ({"maxLength": 90}, {"pattern": "^a"}, {}):
        made = grammar(name, {"q": {"type": "string", **said}})
        assert taken(made, written(name, "q", "a\n<b"), BYTES) == "whole"
        assert taken(made, written(name, "q", f"a{close}b"), BYTES).startswith("refused")


def test_places_of_patterns():
    """Patterns are found by their place, so that a fault of one can be told by it."""
    schema = {"properties": {"q": {"pattern": "^a/$"}, "n": True, "m": {"type": "string"}}}
    assert list(patterns_of(schema)) == [("properties.q.pattern", r"(?:a\/)")]
