"""The API as it describes itself: complete, with examples, and never a 5xx."""

import json
import re
import shutil
from urllib.request import urlopen

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from live_servers import live_server
from served_indexes import API, WRITE_KEY, bearer, with_keys

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")


@pytest.fixture(scope="module")
def described(index_path):
    with (
        live_server(index_path, with_keys()) as server,
        urlopen(server.address + "openapi.json", timeout=600) as response,
    ):
        return json.load(response)


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_no_request_gets_a_5xx_or_shows_internals(index_path, tmp_path, mode):
    # A copy: requests add and remove items.
    index = shutil.copytree(index_path, tmp_path / index_path.name)
    n_operations = n_calls = 0
    with live_server(index, with_keys()) as server:
        api = schemathesis.openapi.from_url(server.address + "openapi.json")
        for result in api.get_all_operations():
            operation = result.ok()
            n_operations += 1

            @given(case=operation.as_strategy(generation_mode=mode))
            # A request takes as long as a dozen of other tests' examples.
            @settings(
                max_examples=settings().max_examples // 12,
                suppress_health_check=list(HealthCheck),
            )
            def check(case):
                nonlocal n_calls
                n_calls += 1
                response = case.call(headers=bearer(WRITE_KEY), timeout=600)
                # Bytes, not text: some responses are images.
                assert response.status_code < 500, response.content
                assert not re.search(rb"Traceback|site-packages|/tmp/", response.content)

            try:
                check()
            except Unsatisfiable:  # a request without parameters cannot be invalid
                assert mode is schemathesis.GenerationMode.NEGATIVE
    assert n_operations >= 15
    assert n_calls >= 60


def test_every_route_is_described_with_its_refusals(described):
    paths = described["paths"]
    assert f"{API}/search" in paths
    assert "/page/{name}" not in paths
    for path, methods in paths.items():
        for method in methods.values():
            assert method["summary"], path
            assert {"422", "503"} <= set(method["responses"]), path


def test_the_description_says_where_the_key_goes(described):
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert described["paths"][f"{API}/search"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in described["paths"]["/health"]["get"]


def test_searches_come_with_examples(described):
    body = described["paths"][f"{API}/search"]["post"]["requestBody"]
    examples = body["content"]["application/json"]["examples"]
    assert {"more like this", "by code", "by image"} <= set(examples)
