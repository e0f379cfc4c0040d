"""/v1/embeddings: there are none to give."""


async def test_there_are_no_embeddings(live):
    """A well-formed request is a 501 that is not worth repeating, whatever it asks beyond."""
    for path in ("/v1/embeddings", "/embeddings"):
        for asked in ({"input": "x"}, {"input": [1, 2], "encoding_format": "base64"}, {}):
            status, got, headers = await live.post(path, asked)
            error = got["error"]
            assert (status, error["type"]) == (501, "not_implemented_error")
            assert error["code"] == "embeddings_not_supported"
            assert "org/tiny:q4 has no embedding head" in error["message"]
            assert headers["x-should-retry"] == "false"


async def test_what_is_wrong_is_told_first(start):
    """A key, JSON and the model's name are asked for as on every route."""
    live = await start(api_keys=("k",))
    assert (await live.post("/v1/embeddings", {"input": "x"}))[0] == 401
    key = {"x-api-key": "k"}
    status, got, _ = await live.post("/v1/embeddings", {"model": "none"}, headers=key)
    assert (status, got["error"]["code"]) == (404, "model_not_found")
    assert (await live.post("/v1/embeddings", raw="{", headers=key))[0] == 400
