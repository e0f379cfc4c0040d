"""What is wrong with a template or a conversation is said in words that help."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from unit.text.chat_samples import (
    CHATML,
    HELLO,
    LOOPS,
    PARTS_ONLY,
)

from radiance_core.text.chat_template import RESERVED, ChatTemplate
from radiance_core.text.errors import TemplateError

Make = Callable[..., ChatTemplate]


class TestErrors:
    """The text of each error says what was expected and what happened."""

    @pytest.mark.parametrize(
        ("source", "kind", "text"),
        [
            (
                "{{ raise_exception('Only user first.') }}",
                "raised",
                "chat template: the template refuses this conversation: Only user first. Change",
            ),
            (
                "{{ a.b.c }}",
                "undefined",
                "chat template: render: the template needs a value that is not there: 'a' is undef",
            ),
            (
                "{{ ''.__class__ }}",
                "forbidden",
                "the template reaches for what it may not have: access to '__class__' of a str is",
            ),
            (
                "{{ 'x' * 5000000 }}",
                "too_large",
                "the text is larger than a prompt may be: more than 4194304 characters; change",
            ),
            (
                "{{ ([0] * 10**9)|length }}",
                "too_large",
                "the text is larger than a prompt may be: out of memory; change",
            ),
            (
                LOOPS,
                "timeout",
                "chat template: render: expected to end within 0.5 s, it did not; shorten",
            ),
            ("{{ 1/0 }}", "failed", "chat template: render: the template failed: division by zero"),
            (
                "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                "failed",
                "the template failed: recursion without end; change",
            ),
        ],
    )
    def test_render(self, make: Make, source: str, kind: str, text: str) -> None:
        """Errors of a render carry their kind; a refusal carries the template's own words."""
        with pytest.raises(TemplateError) as raised:
            make(source, seconds=0.5).render(HELLO)
        assert text in str(raised.value)
        assert raised.value.kind == kind
        said = "Only user first." if kind == "raised" else None
        assert raised.value.template_text == said

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ("\n{% for %}", "chat template: line 2: expected a jinja2 template, got: Expected an"),
            (
                "{% if 1 %}",
                "chat template: line 1: expected a jinja2 template, got: Unexpected e",
            ),
            ("{% if 1 %}" * 51, "chat template: expected nesting of at most 50 levels, got more"),
            ("x" * 262145, "chat template: expected at most 262144 characters, got 262145; give"),
        ],
    )
    def test_load(self, make: Make, source: str, text: str) -> None:
        """What is wrong with the source shows when it is loaded, each time that it is."""
        template = make(source)
        for _ in range(2):
            with pytest.raises(TemplateError) as raised:
                _ = template.facts
            assert text in str(raised.value)
            assert raised.value.kind == ("too_large" if len(source) > 1000 else "syntax")

    def test_many_assignments_are_no_nesting(self, make: Make) -> None:
        """A template that sets a hundred variables one after the other is not deep."""
        source = "{% set x = 1 %}" * 100 + "{% set y %}a{% endset %}{{ x }}{{ y }}"
        assert make(source).render(HELLO) == "1a"
        with pytest.raises(TemplateError, match="got more"):
            _ = make("{% if 1 %}{% set x = 1 %}" * 51).facts

    @pytest.mark.parametrize(
        ("messages", "text"),
        [
            ([{"content": "x"}], "messages[0].role: expected a string, got None; correct"),
            ([*HELLO, {"role": 5}], "messages[1].role: expected a string, got int; correct"),
            (
                [{"role": "user", "content": 5}],
                "messages[0].content: expected a string or a list of parts, got int; correct",
            ),
            (
                [{"role": "user", "content": [{"type": "image_url"}]}],
                "messages[0].content[0]: expected a text part (this template takes no other), got "
                "'image_url'; correct",
            ),
            (
                [{"role": "user", "content": [{"type": "text", "text": 7}]}],
                "messages[0].content[0].text: expected a string, got int; correct",
            ),
            (
                [{"role": "user", "content": "x", "extra": {1, 2}}],
                "chat template: render: expected messages and tools of plain JSON, got",
            ),
        ],
    )
    def test_messages(self, make: Make, messages: list[Any], text: str) -> None:
        """A message that cannot be taken is refused by its place in the request."""
        with pytest.raises(TemplateError) as raised:
            make(CHATML).render(messages)
        assert text in str(raised.value)
        assert raised.value.kind == "message"

    def test_parts_that_are_none(self, make: Make) -> None:
        """Where a template takes parts, something without a type is still refused."""
        with pytest.raises(TemplateError, match="expected a part with a type, got int"):
            make(PARTS_ONLY).render([{"role": "user", "content": [5]}])

    @pytest.mark.parametrize("name", sorted(RESERVED))
    def test_reserved_variables(self, make: Make, name: str) -> None:
        """A request cannot set what the server sets."""
        with pytest.raises(TemplateError, match=f"chat_template_kwargs: .* got {name}, which"):
            make(CHATML).render(HELLO, extra={name: "x"})

    def test_process_lost_while_rendering(self, make: Make) -> None:
        """A process that dies under a render gives an error, and the next render another one."""
        template = make("{% if n %}" + LOOPS + "{% endif %}fine")
        template.render(HELLO)
        pid = template._process.pid
        assert pid is not None
        process = psutil.Process(pid)
        before = process.cpu_times().user

        def kill_at_work() -> None:
            while process.cpu_times().user < before + 0.1:
                time.sleep(0.001)
            process.kill()

        killing = threading.Thread(target=kill_at_work)
        killing.start()
        with pytest.raises(
            TemplateError, match="expected a text, the template process ended"
        ) as got:
            template.render(HELLO, extra={"n": 1})
        killing.join()
        assert got.value.kind == "too_large"
        assert template.render(HELLO) == "fine"

    def test_process_killed(self, make: Make) -> None:
        """A process that is killed from outside is replaced without an error."""
        template = make(CHATML)
        template.render(HELLO)
        pid = template._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        assert "hi" in template.render(HELLO)
        assert template._process.pid != pid
