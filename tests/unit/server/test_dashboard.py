"""The page's files: sent as they are, to browsers that may run nothing else."""

import re
from importlib import resources

import pytest

from radiance_core.server.dashboard import ASSETS, PAGES

FOLDER = resources.files("radiance_core.server") / "page"
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def text_of(name):
    return (FOLDER / name).read_text("utf-8")


def test_every_file_of_the_page_is_sent_and_no_other():
    """The list and the folder are the same, so that nothing is shipped for nothing."""
    assert sorted(ASSETS) == sorted(each.name for each in FOLDER.iterdir())
    assert set(PAGES) == {"/", "/dashboard", *(f"/dashboard/{name}" for name in ASSETS)}


@pytest.mark.parametrize("path", PAGES)
async def test_files_are_sent_under_a_strict_policy(live, path):
    """Whole, with their type, and with a policy that allows this server's files and no more."""
    name = path.removeprefix("/dashboard").lstrip("/") or "index.html"
    async with live.http.get(live.url + path) as got:
        assert got.status == 200
        assert (await got.read()).decode() == text_of(name)
        assert got.content_type == KINDS[name.rpartition(".")[2]]
        policy = dict(p.strip().split(" ", 1) for p in
                      got.headers["content-security-policy"].split(";"))  # fmt: skip
        assert policy["default-src"] == "'none'"
        assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {
            "'self'"
        }
        assert {policy[n] for n in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["cache-control"] == "no-cache"
        tag = got.headers["etag"]
    for asked, status in ((tag, 304), ('"other"', 200)):
        async with live.http.get(live.url + path, headers={"If-None-Match": asked}) as again:
            assert again.status == status
            assert (await again.read() == b"") == (status == 304)
            assert again.headers["etag"] == tag


async def test_the_page_is_there_before_a_model(start):
    """While a model is being loaded the page opens, and learns that from /stats."""
    live = await start(attach=False)
    assert (await live.get("/"))[0] == 200
    status, got, _ = await live.get("/stats")
    assert (status, got["error"]["message"]) == (503, "server: the model is being loaded.")


@pytest.mark.parametrize("name", ASSETS)
def test_nothing_in_the_page_leads_elsewhere(name):
    """No address of another host, no script or style inside markup, no text taken as markup."""
    text = text_of(name)
    addresses = set(
        re.findall(r"""(?:https?:)?//[\w.-]+""", re.sub(r"^\s*//.*$", "", text, flags=re.M))
    )
    assert addresses <= {"http://www.w3.org"}, "names of namespaces are never fetched"
    for forbidden in (r"\son\w+\s*=\s*[\"']", r"\sstyle\s*=", r"<style", r"javascript:",
                      r"innerHTML", r"outerHTML", r"insertAdjacentHTML", r"document\.write",
                      r"\beval\(", r"new Function", r"@import", r"url\("):  # fmt: skip
        assert not re.search(forbidden, text), forbidden
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


def test_every_file_that_the_page_names_exists():
    """Links of the markup and imports of the scripts lead to files that are sent."""
    named = set(re.findall(r'(?:href|src)="dashboard/([^"]+)"', text_of("index.html")))
    for name in ASSETS:
        named |= set(re.findall(r'from "\./([^"]+)"', text_of(name)))
    assert named | {"index.html"} == set(ASSETS)


def test_the_page_weighs_little():
    """Everything together is smaller than one picture: 60 KB as it is sent."""
    assert sum(len((FOLDER / name).read_bytes()) for name in ASSETS) < 60_000


@pytest.mark.parametrize("name", [n for n in ASSETS if not n.endswith((".svg",))])
def test_files_stay_readable(name):
    """At most 250 lines of 100 columns a file, and scripts say first what they are for."""
    lines = text_of(name).splitlines()
    assert len(lines) <= 250
    assert [line for line in lines if len(line) > 100] == []
    if name.endswith(".js"):
        assert lines[0].startswith("// ")
