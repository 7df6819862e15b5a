from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from live_servers import live_server
from orbithash.errors import InputError
from orbithash.serve.settings import Keys, Limits, ServeSettings, check_exposure, keys_from
from served_indexes import API, READ_KEY, WRITE_KEY, bearer, client_of, picture_index, with_keys


@pytest.fixture(scope="module")
def index_path(tmp_path_factory):
    return picture_index(tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "birds.example"])
def test_a_public_address_requires_a_key_or_the_public_option(host):
    with pytest.raises(InputError, match="ORBITHASH_KEY"):
        check_exposure(ServeSettings(host=host))
    check_exposure(ServeSettings(host=host, public=True))
    check_exposure(ServeSettings(host=host, keys=Keys(write=WRITE_KEY)))


def test_a_proxy_requires_a_key_or_the_public_option():
    with pytest.raises(InputError, match="ORBITHASH_KEY"):
        check_exposure(ServeSettings(behind_proxy=True))
    check_exposure(ServeSettings(behind_proxy=True, public=True))
    check_exposure(ServeSettings(behind_proxy=True, keys=Keys(read=READ_KEY)))


def test_a_client_behind_a_proxy_cannot_forge_its_address(index_path):
    limits = Limits(rate=0.01, burst_seconds=200)
    settings = ServeSettings(public=True, behind_proxy=True, limits=limits)
    with live_server(index_path, settings) as server:

        def status_of(forwarded):
            request = Request(
                f"{server.address}api/v1/items/1", headers={"X-Forwarded-For": forwarded}
            )
            try:
                with urlopen(request, timeout=600) as response:
                    return response.status
            except HTTPError as error:
                return error.code

        # The proxy appends the last address; the client sent those before it.
        statuses = [status_of(f"198.51.100.{i}, 203.0.113.5") for i in range(3)]
        assert statuses == [200, 200, 429]
        assert status_of("203.0.113.5, 203.0.113.6") == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_addresses_need_no_key(host):
    check_exposure(ServeSettings(host=host))


def test_keys_come_from_the_environment_and_have_a_minimum_length():
    keys = keys_from({"ORBITHASH_KEY": WRITE_KEY, "ORBITHASH_READ_KEY": READ_KEY})
    assert (keys.write, keys.read) == (WRITE_KEY, READ_KEY)
    assert WRITE_KEY not in repr(keys)
    assert not keys_from({})
    for short in ("secret", "schlüssel" * 3, "with\nline breaks in it"):
        with pytest.raises(InputError, match="printable ASCII"):
            keys_from({"ORBITHASH_KEY": short})


def test_with_keys_everything_about_the_index_requires_one(index_path):
    with client_of(index_path, with_keys()) as client:
        for path in ("stats", "sample", "items/0", "items/0/thumbnail", "items/0/image"):
            rejected = client.get(f"{API}/{path}")
            assert rejected.status_code == 401
            assert rejected.headers["www-authenticate"] == "Bearer"
            assert client.get(f"{API}/{path}", headers=bearer(READ_KEY)).status_code == 200
            assert client.get(f"{API}/{path}", headers=bearer(WRITE_KEY)).status_code == 200
            for wrong in (READ_KEY[:-1], READ_KEY + "x", "", READ_KEY.upper()):
                assert client.get(f"{API}/{path}", headers=bearer(wrong)).status_code == 401
        assert client.post(f"{API}/search", json={"id": 1}).status_code == 401
        assert client.get("/metrics").status_code == 401
        for path in ("/", "/docs", "/page/app.js", "/health", "/ready", "/openapi.json"):
            assert client.get(path).status_code == 200


def test_the_session_cookie_allows_reading_but_not_writing(index_path):
    with client_of(index_path, with_keys()) as client:
        assert client.get(f"{API}/session").status_code == 401
        assert client.post(f"{API}/session", json={"key": "wrong" * 5}).status_code == 401
        welcome = client.post(f"{API}/session", json={"key": WRITE_KEY})
        cookie = welcome.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert WRITE_KEY not in cookie
        assert client.get(f"{API}/stats").status_code == 200  # the client sends it back
        assert client.delete(f"{API}/items/0").status_code == 401
    other = ServeSettings(keys=Keys(write=WRITE_KEY + "changed"))
    with client_of(index_path, other, Cookie=cookie.partition(";")[0]) as client:
        assert client.get(f"{API}/stats").status_code == 401


@pytest.mark.parametrize("odd", ['a={"x":1}', "theme=a b", "x=[1]", "a@b=1", "foo", "=", "é=1"])
def test_malformed_cookies_of_other_servers_are_ignored(index_path, odd):
    with client_of(index_path, with_keys()) as client:
        welcome = client.post(f"{API}/session", json={"key": READ_KEY})
        cookie = welcome.headers["set-cookie"].partition(";")[0]
        client.cookies.clear()
        for sent in (f"{odd}; {cookie}", f"{cookie}; {odd}"):
            response = client.get(f"{API}/stats", headers={"Cookie": sent.encode()})
            assert response.status_code == 200
        assert client.get(f"{API}/stats", headers={"Cookie": odd.encode()}).status_code == 401


def test_servers_on_other_ports_use_other_cookie_names(index_path):
    names = set()
    for keys in (Keys(WRITE_KEY), Keys(READ_KEY)):
        with client_of(index_path, ServeSettings(keys=keys)) as client:
            welcome = client.post(f"{API}/session", json={"key": keys.write})
            names.add(welcome.headers["set-cookie"].partition("=")[0])
    assert len(names) == 2


def test_a_public_server_can_be_read_without_a_key(index_path):
    with client_of(index_path, with_keys(public=True)) as client:
        assert client.get(f"{API}/stats").status_code == 200
        assert client.get(f"{API}/session").status_code == 200


def test_unknown_host_names_are_rejected_on_loopback(index_path):
    with client_of(index_path) as client:
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
            assert client.get(f"{API}/stats", headers={"Host": host}).status_code == 421
        for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
            assert client.get(f"{API}/stats", headers={"Host": host}).status_code == 200


def test_cross_site_requests_are_rejected(index_path):
    with client_of(index_path) as client:
        for site, status in (
            ("cross-site", 403),
            ("same-site", 403),  # another port of this machine
            ("same-origin", 200),
            ("none", 200),
        ):
            response = client.post(
                f"{API}/search", json={"id": 1}, headers={"Sec-Fetch-Site": site}
            )
            assert response.status_code == status


def test_responses_about_items_are_not_cached(index_path):
    with client_of(index_path) as client:
        for path in ("stats", "sample", "items/0", "items/4711"):
            assert client.get(f"{API}/{path}").headers["cache-control"] == "no-store"
        assert "max-age" in client.get(f"{API}/items/0/thumbnail").headers["cache-control"]
        assert client.get("/").headers["cache-control"] == "no-cache"


def test_every_response_has_security_headers(index_path):
    with client_of(index_path) as client:
        for response in (
            client.get("/"),
            client.get("/page/style.css"),
            client.get("/nowhere"),
            client.get(f"{API}/items/0/image"),
            client.post(f"{API}/search", json={}),
        ):
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"
            assert response.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "app.py", "x.js"])
def test_only_page_files_are_served_below_page(index_path, name):
    with client_of(index_path) as client:
        response = client.get(f"/page/{name}")
        assert response.status_code == 404
        assert "import" not in response.text


def test_the_page_has_no_external_or_inline_resources(index_path):
    with client_of(index_path) as client:
        page = client.get("/").text
        assert "http" not in page.replace("http-equiv", "")
        assert "<style" not in page
        assert " style=" not in page
        assert " onclick=" not in page
