"""The API as it describes itself: complete, with examples, and never a 5xx."""

import json
import re
from urllib.request import urlopen

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from live_servers import live_server
from served_indexes import API, WRITE_KEY, bearer, picture_index, with_keys

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with live_server(picture_index(tmp_path_factory.mktemp("served")), with_keys()) as server:
        yield server


@pytest.fixture(scope="module")
def described(server):
    with urlopen(server.address + "openapi.json", timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_whatever_is_sent_to_the_api_is_answered_without_a_5xx(server, mode):
    described = schemathesis.openapi.from_url(server.address + "openapi.json")
    n_operations = n_calls = 0
    for result in described.get_all_operations():
        operation = result.ok()
        n_operations += 1

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
        def check(case):
            nonlocal n_calls
            n_calls += 1
            answer = case.call(headers=bearer(WRITE_KEY), timeout=30)
            assert answer.status_code < 500, answer.text
            assert not re.search(r"Traceback|site-packages|/tmp/", answer.text)

        try:
            check()
        except Unsatisfiable:  # nothing can be wrong with a request that has no parameters
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
