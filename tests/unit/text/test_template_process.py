"""The process that renders a template starts late, holds nothing up, ends with its parent."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.text.chat_samples import (
    CHATML,
    HELLO,
    LOOPS,
)

from radiance_core.text.chat_template import ChatTemplate
from radiance_core.text.errors import TemplateError

Make = Callable[..., ChatTemplate]


class TestProcess:
    """The process starts late, holds nothing up, and does not outlive its parent."""

    def test_starting_is_quick(self, make: Make) -> None:
        """Making a template and starting its process takes none of start-up's time."""
        took = []
        # At the best of a few: a busy machine may take the processor away for as long.
        while len(took) < 10 and min(took, default=1.0) >= 0.5:
            template = make(CHATML)
            assert not template._process.pid
            began = time.monotonic()
            template.start()
            took.append(time.monotonic() - began)
            assert template._process.pid is not None
            assert template.render(HELLO)
        assert min(took) < 0.5

    async def test_event_loop_goes_on(self, make: Make) -> None:
        """While a render runs into its limit, the event loop keeps turning."""
        most = 0
        for _ in range(10):
            render = asyncio.create_task(make(LOOPS, seconds=0.5).render_async(HELLO))
            turns = 0
            while not render.done():
                await asyncio.sleep(0.01)
                turns += 1
            with pytest.raises(TemplateError, match=r"expected to end within 0\.5 s"):
                await render
            if (most := max(most, turns)) > 10:
                break
        assert most > 10

    async def test_many_at_once(self, make: Make) -> None:
        """Concurrent renders each get their own conversation's text."""
        template = make("{{ messages[0].content }}")
        renders = [
            template.render_async([{"role": "user", "content": f"text {index}" * 1000}])
            for index in range(20)
        ]
        texts = await asyncio.gather(*renders)
        assert texts == [f"text {index}" * 1000 for index in range(20)]

    def test_large_conversation(self, make: Make) -> None:
        """Megabytes go through the pipes both ways."""
        content = "é🎉\ud800x" * 500_000
        text = make("{{ messages[0].content }}").render([{"role": "user", "content": content}])
        assert text == content

    @pytest.mark.parametrize("busy", [False, True])
    def test_child_dies_with_parent(self, tmp_path: Path, busy: bool) -> None:
        """After the parent is killed the child is gone, at once when idle, soon when busy."""
        script = tmp_path / "parent.py"
        script.write_text(
            "import sys, time, threading\n"
            "from radiance_core.text.chat_template import ChatTemplate\n"
            "from radiance_core.text.template_process import TemplateProcess\n"
            f"template = ChatTemplate({(LOOPS if busy else 'x')!r}, None, TemplateProcess(1))\n"
            "thread = threading.Thread(target=template.render, args=([],), daemon=True)\n"
            "thread.start()\n"
            "while not template._process.pid: time.sleep(0.01)\n"
            "time.sleep(0.5)\n"
            "print(template._process.pid, flush=True)\n"
            "time.sleep(60)\n"
        )
        parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.stdout.close()
        parent.wait()
        until = time.monotonic() + 60
        while _alive(child):
            assert time.monotonic() < until, "the child goes on without its parent"
            time.sleep(0.05)


def _alive(pid: int) -> bool:
    """Say whether a process runs; one that ended and is not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
