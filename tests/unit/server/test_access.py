"""Who may call: keys, hosts, origins, and what is open to all."""

import pytest

from radiance_core.server.app import INSIDE, OPEN, ROUTES, find
from radiance_core.server.auth import KeyRing
from radiance_core.server.dashboard import PAGES
from radiance_core.server.origin import is_local
from radiance_core.server.ports import is_loopback

CHAT = "/v1/chat/completions"
PATHS = [prefix + path for prefix in ("", "/v1") for path in [*ROUTES, "/models/org/tiny:q4"]]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "TRACE"])
@pytest.mark.parametrize("path", [
    *PATHS, *PAGES, "//v1/models", "/v1/models/", "/v1%2fmodels", "/models.", "/nothing",
    "/v1/../models", "/health/x", "/v1", "/v1/", "/v1/dashboard", "/dashboard/",
    "/dashboard/../stats", "/dashboard/%2e%2e/app.py", "/dashboard/nothing.js",
])  # fmt: skip
async def test_every_route_wants_the_key(start, method, path):
    """Without a key, with a wrong one or one in the query, only probes and the page answer."""
    live = await start(api_keys=("sekret", "other"))
    for url, headers in [
        (path, {}),
        (path, {"Authorization": "Bearer wrong"}),
        (path, {"Authorization": "Basic sekret"}),
        (path, {"Authorization": "sekret"}),
        (path, {"X-Api-Key": "sekre"}),
        (path + "?api_key=sekret&key=sekret", {}),
    ]:
        status, got, got_headers = await live.get(url, method, headers=headers)
        route = find(path)
        if route is not None and route[0] in OPEN:
            assert status in {200, 405}
        else:
            assert status == 401, (url, headers)
            assert got_headers["www-authenticate"] == "Bearer"
            if method != "HEAD":
                has_code = "/messages" not in path  # Anthropic's form has none
                assert got["error"]["type"] == "authentication_error"
                assert not has_code or got["error"]["code"] == "invalid_api_key"
                assert "sekret" not in got["error"]["message"]


async def test_a_key_opens_in_either_header(start):
    """Bearer and X-Api-Key both work, with any of the keys, whatever else is shown."""
    live = await start(api_keys=("sekret", "öther"))
    for headers in [
        {"Authorization": "Bearer sekret"}, {"authorization": "bearer  sekret "},
        {"X-Api-Key": "sekret"}, {"X-Api-Key": "öther"},
        {"Authorization": "Bearer wrong", "X-Api-Key": "sekret"},
    ]:  # fmt: skip
        assert (await live.get("/v1/models", headers=headers))[0] == 200, headers


class _Peer:
    """As much of a request as says where it comes from."""

    def __init__(self, peer, headers=()):
        self.headers = dict(headers)
        self.transport = self if peer is not False else None
        self._peer = peer

    def get_extra_info(self, name):
        assert name == "peername"
        return self._peer


def test_what_counts_as_this_machine():
    """Loopback addresses do; others, no address, and what a proxy passed on do not."""
    for peer in (("127.0.0.1", 9), ("127.3.4.5", 9), ("::1", 9, 0, 0)):
        assert is_local(_Peer(peer))
        for name in ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"):
            assert not is_local(_Peer(peer, {name: "127.0.0.1"}))
    for peer in (("10.0.0.1", 9), ("192.168.1.1", 9), ("fe80::1%eth0", 9, 0, 2), None, "", False):
        assert not is_local(_Peer(peer))


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
async def test_without_keys_the_inside_is_for_this_machine_only(start, prefix, method):
    """No key asked for: a proxy's caller is refused where one can look in, and nowhere else."""
    live = await start()
    for path, methods in {**ROUTES, **(PAGES if not prefix else {})}.items():
        headers = {"X-Forwarded-For": "127.0.0.1"}
        status, got, _ = await live.get(prefix + path, method, headers=headers)
        assert (status == 403) == (path in INSIDE), path
        if path in INSIDE and method != "HEAD":
            assert got["error"]["code"] == "local_only"
            assert got["error"]["message"].startswith(f"{path}: without API keys it answers")
            assert "--api-key" in got["error"]["message"]
        if path in INSIDE:
            async with live.http.request(method, live.url + prefix + path) as got:
                served = {"HEAD": "GET"}.get(method, method) in methods
                assert got.status == (200 if served else 405), path


async def test_with_keys_the_inside_is_for_those_who_have_one(start):
    """With keys the key decides, wherever the caller is."""
    live = await start(api_keys=("k",))
    for path in INSIDE:
        [method] = find(path)[1]
        for elsewhere in ({}, {"X-Forwarded-For": "10.0.0.1"}):
            status, _, _ = await live.get(path, method, headers=elsewhere)
            assert status == (200 if path in PAGES else 401)
            headers = {"X-Api-Key": "k", **elsewhere}
            assert (await live.get(path, method, headers=headers))[0] == 200


async def test_health_tells_details_only_to_those_with_a_key(start):
    """Without a key the probe says a word; with one it says which model and why."""
    live = await start(api_keys=("k",))
    assert (await live.get("/health"))[1] == {"status": "ok"}
    _, got, _ = await live.get("/health", headers={"X-Api-Key": "k"})
    assert got == {"status": "ok", "detail": "steps run", "model": "org/tiny:q4"}
    live.engine.state = "failed"
    status, got, _ = await live.get("/health")
    assert (status, got["status"]) == (503, "failed")
    assert "broke" not in str(got)


def test_keys_compare_as_bytes_even_when_they_are_no_text():
    """A header that is no UTF-8 is a wrong key, not an error; prefixes and cases do not match."""
    ring = KeyRing(["abc"])
    assert ring.accepts("abc")
    for wrong in ("", "ab", "abcd", "ABC", "abc\udcff", "\udc80"):
        assert not ring.accepts(wrong)
    assert not KeyRing([])


def test_every_key_is_always_compared(monkeypatch):
    """The number of comparisons does not tell which key matched."""
    seen = []
    ring = KeyRing(["a", "b", "c"])
    import hmac

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda x, y: seen.append(1) or real(x, y))
    for key in ("a", "b", "c", "d"):
        seen.clear()
        ring.accepts(key)
        assert len(seen) == 3


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:9", 200), ("LOCALHOST.", 200), ("app.localhost", 200),
        ("127.0.0.1", 200), ("127.9.9.9:1", 200), ("[::1]:8000", 200), ("[::1]", 200),
        ("good.example", 200), ("sub.wide.example:80", 200),
        ("evil.example", 403), ("localhost.evil.example", 403), ("evil-localhost", 403),
        ("10.0.0.1", 403), ("0.0.0.0", 403), ("wide.example", 403), ("xwide.example", 403),
        ("good.example.evil", 403), ("169.254.169.254", 403), ("2130706433", 403),
        ("", 400), ("a b", 400), ("localhost:x", 400), ("localhost/../x", 400),
        ("u@localhost", 400),
    ],
)  # fmt: skip
async def test_hosts(start, host, status):
    """Only this server's own names are answered, so that no foreign name can be pointed at it."""
    live = await start(allowed_hosts=("good.example", ".wide.example"))
    got_status, got, _ = await live.get("/v1/models", headers={"Host": host})
    assert got_status == status
    if status == 400:
        assert f"Host: expected one host name, got {host!r}" in got["error"]["message"]
    if status == 403:
        assert got["error"]["code"] == "host_not_allowed"
        assert got["error"]["message"].startswith(f"Host: {host!r} is not a name of this server;")
        assert "--allowed-host" in got["error"]["message"]


@pytest.mark.parametrize(
    ("origin", "status", "granted"),
    [
        ("http://evil.example", 403, None), ("null", 403, None), ("", 403, None),
        ("http://localhost:3000", 403, None), ("http://[bad", 403, None),
        ("https://page.example", 200, "https://page.example"),
        ("https://page.example.evil", 403, None), ("http://page.example", 403, None),
    ],
)  # fmt: skip
async def test_origins(start, hi, origin, status, granted):
    """Pages of other origins are refused, allowed ones get their own name back, never a star."""
    live = await start(cors_origins=("https://page.example",))
    got_status, got, headers = await live.post(CHAT, hi, headers={"Origin": origin})
    assert got_status == status
    assert headers.get("access-control-allow-origin") == granted
    if status == 403:
        assert got["error"]["code"] == "origin_not_allowed"
    _, headers, _ = await live.stream(CHAT, hi)
    assert "access-control-allow-origin" not in headers


async def test_own_pages_and_preflight(start, hi):
    """The server's own origin needs no CORS; a preflight is answered without a key, if allowed."""
    live = await start(cors_origins=("https://page.example",), api_keys=("k",))
    same = {"Origin": live.url, "X-Api-Key": "k"}
    assert (await live.post(CHAT, hi, headers=same))[0] == 200
    asked = {"Access-Control-Request-Method": "POST", "Origin": "https://page.example"}
    async with live.http.options(live.url + CHAT, headers=asked) as got:
        assert got.status == 204
        assert got.headers["access-control-allow-origin"] == "https://page.example"
        assert "POST" in got.headers["access-control-allow-methods"]
    asked["Origin"] = "https://evil.example"
    assert (await live.get(CHAT, "OPTIONS", headers=asked))[0] == 403
    star = await start(cors_origins=("*",))
    _, _, headers = await star.post(CHAT, hi, headers={"Origin": "http://any.example"})
    assert headers["access-control-allow-origin"] == "*"


STAINLESS = "x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
OF_CLIENTS = {
    "openai": "authorization,content-type,openai-organization,openai-project," + STAINLESS
    + "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version",
    "anthropic": "anthropic-dangerous-direct-browser-access,anthropic-version,content-type,"
    + STAINLESS + "x-api-key,x-stainless-retry-count,x-stainless-runtime,"
    "x-stainless-runtime-version,x-stainless-timeout",
}  # fmt: skip


@pytest.mark.parametrize("client", OF_CLIENTS)
async def test_the_official_clients_may_call_from_a_page(start, client):
    """Every header that a client of theirs sends in a browser is allowed to a granted origin."""
    live = await start(cors_origins=("https://page.example",))
    asked = {"Access-Control-Request-Method": "POST", "Origin": "https://page.example",
             "Access-Control-Request-Headers": OF_CLIENTS[client]}  # fmt: skip
    async with live.http.options(live.url + CHAT, headers=asked) as got:
        assert got.status == 204
        allowed = set(got.headers["access-control-allow-headers"].replace(" ", "").split(","))
        assert allowed == set(OF_CLIENTS[client].split(","))
        assert got.headers["x-request-id"].startswith("req_")
        assert got.headers["server"] == "radiance"
    denied = {**asked, "Origin": "https://evil.example"}
    async with live.http.options(live.url + CHAT, headers=denied) as got:
        assert (got.status, got.headers.get("access-control-allow-headers")) == (403, None)


@pytest.mark.parametrize("asked", ["a b", "x,", "x-ä", "x;y", "a" * 1025, "x,(y)", ""])
async def test_what_is_no_list_of_headers_is_not_repeated(start, asked):
    """Only names of headers are ever said back, and no long list of them."""
    live = await start(cors_origins=("https://page.example",))
    headers = {"Access-Control-Request-Method": "POST", "Origin": "https://page.example",
               "Access-Control-Request-Headers": asked}  # fmt: skip
    async with live.http.options(live.url + CHAT, headers=headers) as got:
        assert got.status == 204
        told = got.headers["access-control-allow-headers"]
        assert told == "authorization, content-type, x-api-key, x-request-id"


async def test_pages_may_read_what_answers_say_in_headers(start, hi):
    """Request id, what was ignored, and when to come back can be read by a granted page."""
    live = await start(cors_origins=("https://page.example",))
    _, _, headers = await live.post(
        CHAT, hi | {"nonsense": 1}, headers={"Origin": "https://page.example"}
    )
    told = {name.strip().lower() for name in headers["access-control-expose-headers"].split(",")}
    assert {"x-request-id", "x-radiance-ignored", "retry-after", "openai-processing-ms"} <= told
    assert headers["x-radiance-ignored"] == "nonsense"


async def test_a_page_cannot_drive_the_server_without_asking(live, hi):
    """The cross-origin request that browsers send unasked, text/plain, generates nothing."""
    headers = {"content-type": "text/plain", "Origin": "http://evil.example"}
    status, _, got = await live.post(CHAT, hi, headers=headers)
    assert status == 403
    assert "access-control-allow-origin" not in got
    assert live.engine.requests == []


def test_loopback_names():
    """Names and addresses that only this machine reaches."""
    for host in ("localhost", "a.localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "example.org", "192.168.0.1", "", "localhost.example.org"):
        assert not is_loopback(host)


async def test_hosts_of_a_server_bound_to_all_addresses(start):
    """Bound beyond loopback, the machine's name and the address called are its own, others not."""
    import socket

    live = await start(host="0.0.0.0", insecure=True)
    url = f"http://127.0.0.1:{live.server.port}/v1/models"
    for host, status in [(socket.gethostname(), 200), ("127.0.0.1", 200), ("evil.example", 403),
                         ("10.9.8.7", 403)]:  # fmt: skip
        async with live.http.get(url, headers={"Host": host}) as got:
            assert got.status == status, host


async def test_streams_carry_the_cors_headers(start, hi):
    """An allowed page can read a stream as it can read a whole answer."""
    import json

    live = await start(cors_origins=("https://page.example",))
    headers = {"Origin": "https://page.example", "content-type": "application/json"}
    data = json.dumps({**hi, "stream": True})
    async with live.http.post(live.url + CHAT, data=data, headers=headers) as got:
        assert got.headers["access-control-allow-origin"] == "https://page.example"
        assert got.headers["server"] == "radiance"
        assert (await got.read()).endswith(b"[DONE]\n\n")


async def test_a_server_open_to_all_shows_its_inside_to_this_machine_only(start):
    """Called by an address that others can reach too, the server answers, but shows nothing."""
    import socket

    import psutil

    found = [
        address.address
        for listed in psutil.net_if_addrs().values()
        for address in listed
        if address.family == socket.AF_INET and not is_loopback(address.address)
    ]
    if not found:
        pytest.skip("this machine has no address beyond loopback")
    live = await start(host="0.0.0.0", insecure=True)
    for path in INSIDE:
        [method] = find(path)[1]
        for host, status in [(found[0], 403), ("127.0.0.1", 200)]:
            url = f"http://{host}:{live.server.port}{path}"
            async with live.http.request(method, url) as got:
                assert got.status == status, (host, path)
    async with live.http.get(f"http://{found[0]}:{live.server.port}/v1/models") as got:
        assert got.status == 200
