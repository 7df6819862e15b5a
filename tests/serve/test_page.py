"""The search page in a real browser."""

import base64
import re
import time

import numpy as np
import pytest

from browsers import Visit, browser  # noqa: F401 — a fixture
from image_files import noise
from live_servers import live_server
from orbithash.index import Metadata, create_index
from served_indexes import API, READ_KEY, as_bytes, client_of, picture_index, with_keys

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 375, "height": 740}, "has_touch": True, "is_mobile": True}
N_ITEMS = 24


@pytest.fixture(scope="module")
def index_path(tmp_path_factory):
    return picture_index(tmp_path_factory.mktemp("served"), classes=3, per_class=8)


@pytest.fixture(scope="module")
def server(index_path):
    with client_of(index_path) as client:  # compiles the kernels before a browser waits for them
        client.post(f"{API}/search", json={"id": 5}).raise_for_status()
        client.post(f"{API}/search", json={"id": 5, "radius": 0}).raise_for_status()
        client.get(f"{API}/stats").raise_for_status()
    with live_server(index_path) as server:
        yield server


@pytest.fixture
def visit(browser, server, request):  # noqa: F811
    """A page without console errors and without requests to other hosts."""
    visit = Visit(browser, server.address, **getattr(request, "param", {}))
    yield visit
    visit.close()
    assert visit.foreign_requests == []
    assert visit.errors == []


@pytest.fixture
def page(visit):
    visit.page.goto(visit.address)
    visit.page.wait_for_selector("#grid .card")
    return visit.page


def cards(page):
    return page.locator("#grid .card")


def wait_for_results(page, query):
    """Wait for the results of a query and return their cards."""
    page.wait_for_function(
        "query => location.search.includes(query) && document.querySelector('#grid .distance')"
        " && document.querySelector('#grid').getAttribute('aria-busy') === 'false'",
        arg=query,
    )
    return cards(page)


def transfer(page, content, name="bird.png", kind="image/png"):
    """Return the DataTransfer of a dropped or pasted file."""
    return page.evaluate_handle(
        """([content, name, type]) => {
            const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], name, { type }));
            return data;
        }""",
        [base64.b64encode(content).decode(), name, kind],
    )


def test_dropping_an_image_shows_the_nearest_items(page, index_path):
    content = (index_path.parent / "photos/1/2.png").read_bytes()
    data = transfer(page, content)
    page.dispatch_event("body", "dragenter", {"dataTransfer": data})
    assert page.locator("#drop-overlay").is_visible()
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    assert page.locator("#drop-overlay").is_hidden()
    assert wait_for_results(page, "code=").count() == N_ITEMS
    first = cards(page).first
    distance = first.locator(".distance").inner_text()
    assert re.fullmatch(r"\d+\.\d{3}", distance)
    assert first.locator(".faint").first.inner_text() == "0 bits"
    assert "Distances are asymmetric" in page.inner_text("#legend")
    assert page.locator("#query img").get_attribute("src").startswith("data:image/")
    assert re.search(r"Took [\d.]+ ms: .* to encode, .* to search", page.inner_text("#latency"))
    page.reload()  # the URL holds the code, the tab the preview and the embedding
    assert wait_for_results(page, "code=").count() == N_ITEMS
    assert page.locator("#query img").get_attribute("alt") == "Your image"
    assert cards(page).first.locator(".distance").inner_text() == distance


def test_the_link_of_an_uploaded_image_ranks_by_its_code_elsewhere(page, visit, index_path):
    content = (index_path.parent / "photos/1/2.png").read_bytes()
    page.dispatch_event("body", "drop", {"dataTransfer": transfer(page, content)})
    wait_for_results(page, "code=")
    page.evaluate("sessionStorage.clear()")
    page.reload()
    wait_for_results(page, "code=")
    assert cards(page).first.locator(".distance").inner_text() == "0 bits"
    assert "Distances are Hamming distances" in page.inner_text("#legend")


def test_an_image_can_be_pasted_or_chosen(page, index_path):
    data = transfer(page, as_bytes(noise((30, 20), seed=5)))
    page.evaluate(
        "data => document.dispatchEvent("
        "new ClipboardEvent('paste', { clipboardData: data, bubbles: true }))",
        data,
    )
    wait_for_results(page, "code=")
    before = page.url
    page.set_input_files("#file", index_path.parent / "photos/2/1.png")
    page.wait_for_function("before => location.href !== before", arg=before)
    assert wait_for_results(page, "code=").count() == N_ITEMS


def test_clicking_a_result_searches_by_it_and_back_returns(page):
    start = page.inner_text("#summary")
    cards(page).nth(3).click()
    wait_for_results(page, "id=")
    first, shown = page.url, page.inner_text("#query .name")
    assert cards(page).count() == N_ITEMS - 1
    cards(page).nth(2).click()
    page.wait_for_function("before => location.href !== before", arg=first)
    wait_for_results(page, "id=")
    assert page.inner_text("#query .name") != shown
    page.go_back()
    page.wait_for_function(
        "shown => document.querySelector('#query .name').textContent === shown", arg=shown
    )
    assert page.url == first
    page.go_back()
    page.wait_for_function(
        "start => document.querySelector('#summary').textContent === start", arg=start
    )
    page.go_forward()
    wait_for_results(page, "id=")
    assert page.url == first


def test_each_result_shows_its_distance_and_differing_bits(visit):
    visit.page.goto(visit.address + "?id=5")
    results = wait_for_results(visit.page, "id=5")
    for i in range(results.count()):
        distance, unit = results.nth(i).locator(".distance").inner_text().split()
        distance = int(distance)
        assert unit == ("bit" if distance == 1 else "bits")
        spoken = results.nth(i).locator(".strip").get_attribute("aria-label")
        expected = f"{distance} of 24 bits differ: " if distance else "all 24 bits are equal"
        assert spoken.startswith(expected)
        label = results.nth(i).locator(".label").inner_text()
        assert results.nth(i).locator(".mark").get_attribute("aria-label") == (
            "same label" if label == "0" else "other label"
        )
    matching = results.locator(".mark.same").count()
    assert matching == 7
    assert f"{matching} with the same label" in visit.page.inner_text("#summary")
    assert "7 with the same label" in visit.page.inner_text("#announcer")


def test_sliders_and_labels_restrict_the_results(visit):
    page = visit.page
    page.goto(visit.address + "?id=5")
    wait_for_results(page, "id=5")
    page.focus("#k")
    page.keyboard.press("Home")
    page.wait_for_function("() => document.querySelectorAll('#grid .card').length === 1")
    assert "k=1" in page.url
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelectorAll('#grid .card').length === 5")
    assert page.inner_text("#k-shown") == "5"
    page.focus("#radius")
    page.keyboard.press("Home")
    page.wait_for_function("() => location.search.includes('radius=0')")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#grid .distance')]"
        ".every((shown) => shown.textContent === '0 bits')"
    )
    page.keyboard.press("End")
    page.wait_for_function("() => !location.search.includes('radius')")
    page.fill("#label", "2")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.search.includes('label=2')")
    page.wait_for_function(
        "() => document.querySelectorAll('#grid .card').length === 5"
        " && [...document.querySelectorAll('#grid .label')]"
        ".every((shown) => shown.textContent === '2')"
    )
    page.reload()
    assert wait_for_results(page, "label=2").count() == 5
    assert page.inner_text("#summary") == "5 nearest of 8 other images with the label 2"
    assert page.inner_text("#latency").startswith("24 images in all. Took ")
    page.click("#chosen button")
    page.wait_for_function("() => !location.search.includes('label')")
    page.wait_for_function("() => document.querySelector('#grid .mark.same')")


class HeldRequests:
    """Requests that wait until the test releases them."""

    def __init__(self, page, address):
        self._page = page
        self._routes = []
        self._is_holding = True
        page.route(address, lambda route: self._handle(route))

    def _handle(self, route):
        if self._is_holding:
            self._routes.append(route)
        else:
            route.continue_()

    def wait(self):
        deadline = time.monotonic() + 120
        while not self._routes:
            assert time.monotonic() < deadline, "no request was made"
            self._page.wait_for_timeout(10)

    def release(self):
        self._is_holding = False
        for route in self._routes:
            route.continue_()


def test_a_response_does_not_reset_sliders_moved_since_the_request(visit):
    page = visit.page
    page.clock.install()
    page.goto(visit.address + "?id=5&radius=0")
    wait_for_results(page, "id=5")
    held = HeldRequests(page, "**/api/v1/search")
    page.fill("#label", "0")
    page.keyboard.press("Enter")
    held.wait()
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 3600)
    page.focus("#radius")
    page.keyboard.press("End")  # the debounce timer does not expire while the clock is paused
    held.release()
    wait_for_results(page, "radius=0&label=0")
    assert page.inner_text("#radius-shown") == "any"
    page.clock.run_for(200)
    assert wait_for_results(page, "?id=5&label=0").count() == 7


def test_a_click_on_an_old_card_keeps_options_changed_since(visit):
    page = visit.page
    page.goto(visit.address + "?id=5")
    wait_for_results(page, "id=5")
    held = HeldRequests(page, "**/api/v1/search")
    page.fill("#label", "2")
    page.keyboard.press("Enter")
    held.wait()
    old = cards(page).first
    chosen = old.get_attribute("data-id")
    old.click()
    held.release()
    results = wait_for_results(page, f"?id={chosen}&label=2")
    assert set(results.locator(".label").all_inner_texts()) == {"2"}


def test_changing_options_during_an_upload_keeps_the_upload(page, index_path):
    held = HeldRequests(page, "**/api/v1/search/image")
    cards(page).first.click()
    wait_for_results(page, "id=")
    page.set_input_files("#file", index_path.parent / "photos/2/1.png")
    held.wait()
    page.fill("#label", "2")
    page.keyboard.press("Enter")
    page.focus("#k")
    page.keyboard.press("Home")
    held.release()  # before or after the debounce of the slider
    page.wait_for_function(
        "() => location.search.includes('code=') && location.search.includes('k=1&label=2')"
    )
    page.wait_for_function("() => document.querySelectorAll('#grid .card').length === 1")
    assert cards(page).locator(".label").inner_text() == "2"


def test_opening_the_collection_cancels_a_random_image(page):
    held = HeldRequests(page, "**/api/v1/sample?n=1&*")
    page.click("#random")
    held.wait()
    with page.expect_event("requestfailed", lambda request: "sample?n=1&" in request.url):
        page.click("nav a[data-view=collection]")
    page.wait_for_selector("#collection .grid .card")
    assert page.url.endswith("?view=collection")


def test_the_theme_is_switched_and_remembered(page):
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.click("#theme")
    assert page.get_attribute("#theme", "aria-pressed") == "true"
    dark = page.evaluate(paper)
    assert dark != light
    page.reload()
    assert page.evaluate(paper) == dark
    page.click("#theme")
    assert page.evaluate(paper) == light


@pytest.mark.parametrize("visit", [{"color_scheme": "dark"}], indirect=True)
def test_the_system_theme_is_the_default(page):
    assert page.get_attribute("html", "data-theme") == "dark"


@pytest.mark.parametrize("visit", [PHONE], indirect=True)
@pytest.mark.parametrize("address", ["?", "?id=5", "?view=collection", "?view=duplicates"])
def test_a_phone_needs_no_horizontal_scrolling(visit, address):
    visit.page.goto(visit.address + address)
    visit.page.wait_for_selector(".card .picture img")
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert visit.page.evaluate(
        "document.querySelector('#theme').getBoundingClientRect().right <= innerWidth"
    )


def test_the_page_works_by_keyboard(page):
    def press_until(selector, key="Tab"):
        for _ in range(80):
            page.keyboard.press(key)
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"{selector} cannot be reached")

    press_until("#file")
    press_until("#random")
    page.keyboard.press("Enter")
    wait_for_results(page, "id=")
    assert page.evaluate("document.activeElement.id") == "summary"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    chosen = page.evaluate("document.activeElement.dataset.id")
    assert chosen == cards(page).nth(1).get_attribute("data-id")
    page.keyboard.press("Enter")
    wait_for_results(page, f"id={chosen}")
    page.evaluate("document.querySelector('.brand').focus()")
    press_until("a[data-view=collection]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tiles")
    assert page.evaluate("document.activeElement.id") == "collection-title"


def test_all_elements_have_accessible_names(visit):
    for address in ("?id=5", "?view=collection", "?view=duplicates"):
        visit.page.goto(visit.address + address)
        visit.page.wait_for_selector(".card img")
        nameless = visit.page.evaluate(
            """() => [...document.querySelectorAll('button, a, input, svg[role=img], section, img')]
                .filter((one) => one.checkVisibility() && !one.hasAttribute('alt'))
                .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim()
                    || one.labels?.length || one.hasAttribute('aria-labelledby')))
                .map((one) => one.outerHTML)"""
        )
        assert nameless == []
        assert visit.page.locator("h1:visible").count() == 1
    assert visit.page.get_attribute("html", "lang") == "en"


def test_the_collection_shows_statistics_and_links_to_searches(page):
    page.click("nav a[data-view=collection]")
    page.wait_for_selector("#collection .grid .card")
    assert [text.lower() for text in page.locator(".tiles dd").all_inner_texts()[:3]] == [
        "24",
        "24",
        "3",
    ]
    assert page.locator(".bars li").count() == 3
    assert page.locator(".chart").count() == 2
    assert page.locator(".chart").nth(1).locator(".bar").count() == 24
    assert page.locator(".pairs").count() == 2
    first = page.locator(".pairs").first.locator(".card").first
    href = first.get_attribute("href")
    first.click()
    assert wait_for_results(page, href).count() == N_ITEMS - 1
    page.go_back()
    page.wait_for_selector("#collection .tiles")


@pytest.fixture
def failing(visit):
    """A visit in which the browser logs expected error responses."""
    visit.expected_error = "Failed to load resource"
    return visit


def test_an_invalid_image_shows_an_error_and_the_page_still_works(failing, page):
    data = transfer(page, b"hello", "notes.txt", "text/plain")
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    page.wait_for_selector("#problem:visible")
    assert "not an image of a known format" in page.inner_text("#problem")
    assert cards(page).count() == N_ITEMS
    cards(page).first.click()
    wait_for_results(page, "id=")
    assert page.locator("#problem").is_hidden()


def test_a_rejected_image_resumes_the_search_it_interrupted(failing):
    page = failing.page
    held = HeldRequests(page, "**/api/v1/search")
    page.goto(failing.address + "?id=5")
    held.wait()
    data = transfer(page, b"hello", "notes.txt", "text/plain")
    with page.expect_response("**/search/image"):
        page.dispatch_event("body", "drop", {"dataTransfer": data})
    held.release()
    page.wait_for_selector("#problem:visible")
    assert wait_for_results(page, "id=5").count() == N_ITEMS - 1
    assert "not an image of a known format" in page.inner_text("#problem")


def test_a_rejected_image_leaves_the_collection_unchanged(failing):
    page = failing.page
    page.goto(failing.address + "?view=collection")
    page.wait_for_selector("#collection .grid .card")
    data = transfer(page, b"hello", "notes.txt", "text/plain")
    with page.expect_response("**/api/v1/sample*"):  # the collection is reloaded
        page.dispatch_event("body", "drop", {"dataTransfer": data})
    page.wait_for_selector("#collection .grid .card")
    assert "not an image" in page.inner_text("#problem")
    with page.expect_response("**/api/v1/sample*"):
        page.click("text=Show others")
    assert page.title() == "Collection · orbithash"


def test_a_label_can_be_removed_when_the_server_does_not_respond(failing):
    page = failing.page
    page.goto(failing.address + "?id=5")
    wait_for_results(page, "id=5")
    page.route("**/api/v1/search", lambda route: route.abort())
    page.fill("#label", "2")
    page.keyboard.press("Enter")
    page.wait_for_selector("#problem:visible")
    page.unroute("**/api/v1/search")
    page.click("#chosen button")
    assert wait_for_results(page, "id=5").count() == N_ITEMS - 1
    assert page.locator("#problem").is_hidden()


def test_the_key_is_requested_once(browser, index_path):  # noqa: F811
    with live_server(index_path, with_keys()) as server:
        visit = Visit(browser, server.address)
        page = visit.page
        page.goto(server.address)
        page.wait_for_selector("#key-dialog:modal")
        page.fill("#key", "not the right one")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-problem:visible")
        page.fill("#key", READ_KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector("#grid .card img")
        page.reload()
        page.wait_for_function("() => document.querySelector('#grid .card img')?.naturalWidth > 0")
        assert page.locator("#key-dialog").is_hidden()
        visit.close()
    assert visit.foreign_requests == []
    assert all("Failed to load resource" in each for each in visit.errors)


def test_submitting_the_key_twice_opens_one_session(browser, index_path):  # noqa: F811
    with live_server(index_path, with_keys()) as server:
        visit = Visit(browser, server.address)
        page = visit.page
        requests = []
        page.on("request", lambda request: requests.append(request.method))
        page.goto(server.address)
        page.fill("#key", READ_KEY)
        page.evaluate("""() => {
            for (let i = 0; i < 2; i++) document.querySelector("#key-form button").click();
        }""")
        page.wait_for_selector("#grid .card img")
        assert requests.count("POST") == 1
        visit.close()


def test_disabled_cookies_show_an_error_instead_of_the_key_dialog(browser, index_path):  # noqa: F811
    with live_server(index_path, with_keys()) as server:
        visit = Visit(browser, server.address)
        page = visit.page
        page.route("**/api/v1/about", lambda route: route.fulfill(status=401, body="{}"))
        page.goto(server.address)
        page.fill("#key", READ_KEY)
        with page.expect_response("**/api/v1/about"):
            page.keyboard.press("Enter")
        page.wait_for_selector("#key-dialog:modal")
        page.fill("#key", READ_KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector("#problem:visible")
        assert "cookie" in page.inner_text("#problem")
        assert page.locator("#key-dialog").is_hidden()
        visit.close()


def test_back_restores_the_images_and_the_scroll_position(page):
    page.set_viewport_size({"width": 420, "height": 500})
    names = cards(page).evaluate_all("cards => cards.map((card) => card.href)")
    cards(page).nth(15).scroll_into_view_if_needed()
    page.wait_for_function("() => history.state?.scroll > 0")
    scroll = page.evaluate("scrollY")
    cards(page).nth(15).click()
    wait_for_results(page, "id=")
    assert page.evaluate("scrollY") == 0
    page.go_back()
    page.wait_for_function("scroll => Math.abs(scrollY - scroll) < 3", arg=scroll)
    shown = cards(page).evaluate_all("cards => cards.map((card) => card.href)")
    assert shown == names


def test_an_unknown_id_clears_the_results(failing):
    page = failing.page
    page.goto(failing.address + "?id=5")
    wait_for_results(page, "id=5")
    page.evaluate("history.pushState(null, '', '?id=4711'); history.pushState(null, '', '?id=1')")
    page.go_back()
    page.wait_for_selector("#problem:visible")
    assert "4711" in page.inner_text("#problem")
    assert cards(page).count() == 0
    assert page.locator("#query").is_hidden()


def test_the_skip_link_does_not_search_again(visit):
    visit.page.goto(visit.address + "?id=5")
    wait_for_results(visit.page, "id=5")
    requests = []
    visit.page.on("request", lambda request: requests.append(request.url))
    visit.page.focus(".skip")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_function("() => location.hash === '#main'")
    visit.page.wait_for_timeout(200)
    assert not [url for url in requests if url.endswith("/search")]


def test_a_label_that_no_image_has_is_refused_and_can_be_removed(failing):
    page = failing.page
    page.goto(failing.address + "?id=5")
    wait_for_results(page, "id=5")
    page.fill("#label", "dodo")
    page.keyboard.press("Enter")
    page.wait_for_selector("#problem:visible")
    assert "No item has the label 'dodo'" in page.inner_text("#problem")
    assert cards(page).count() == 0
    page.reload()  # a link with the label
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#k-shown") == "24"
    page.click("#chosen button")
    assert wait_for_results(page, "?id=5").count() == N_ITEMS - 1
    assert page.locator("#problem").is_hidden()


def test_a_random_image_clears_the_filter(visit):
    page = visit.page
    page.goto(visit.address + "?id=5&k=3&label=2")
    wait_for_results(page, "label=2")
    page.click("#random")
    page.wait_for_function("() => !location.search.includes('label')")
    assert wait_for_results(page, "k=3").count() == 3
    assert page.locator("#chosen li").count() == 0
    assert "nearest of 23 other images" in page.inner_text("#summary")


def test_an_empty_radius_says_how_far_the_nearest_image_is(browser, tmp_path):  # noqa: F811
    index = create_index(tmp_path / "far.orbit", 8)
    metadata = [Metadata(labels=(label,)) for label in ("a", "a", "b")]
    index.add(codes=[[0b0], [0b111], [0b11111]], metadata=metadata)
    with live_server(index) as server:
        visit = Visit(browser, server.address)
        for query, expected in [
            ("?id=0&radius=1", "Nothing within 1 bit: the nearest is 3 bits away"),
            (
                "?id=0&radius=4&label=b",
                "Nothing with the label b within 4 bits: the nearest is 5 bits away",
            ),
            ("?id=0&radius=3", "1 of 2 other images within 3 bits, 1 with the same label"),
            ("?id=2&label=b", "The index has no other image with the label b"),
        ]:
            visit.page.goto(server.address + query)
            visit.page.wait_for_function(
                "text => document.querySelector('#summary').textContent === text", arg=expected
            )
        visit.close()
    assert visit.errors == []


def test_an_empty_index_says_so(browser, tmp_path):  # noqa: F811
    with live_server(create_index(tmp_path / "empty.orbit", 8)) as server:
        visit = Visit(browser, server.address)
        visit.page.goto(server.address)
        visit.page.wait_for_function(
            "() => document.querySelector('#summary').textContent === 'The index is empty'"
        )
        assert "orbithash index" in visit.page.inner_text("#latency")
        assert visit.page.locator("#random").is_hidden()
        visit.page.goto(server.address + "?view=collection")
        visit.page.wait_for_selector(".tiles")
        assert "null" not in visit.page.inner_text("#collection")
        visit.close()
    assert visit.errors == []


def test_a_label_of_the_collection_leads_to_its_images(page):
    page.click("nav a[data-view=collection]")
    page.click(".bars a >> text=1")
    page.wait_for_function("() => location.search.includes('label=1')")
    page.wait_for_function(
        "() => document.querySelector('#summary').textContent === '8 of 8 images with the label 1'"
    )
    assert set(page.locator("#grid .label").all_inner_texts()) == {"1"}
    assert page.inner_text("#latency") == "24 images in all, 24 bits each"
    page.click("#chosen button")
    page.wait_for_function("() => document.querySelectorAll('#grid .card').length === 24")


@pytest.mark.parametrize("visit", [PHONE, {}], indirect=True, ids=["phone", "laptop"])
def test_no_text_of_a_chart_is_clipped(visit):
    visit.page.goto(visit.address + "?view=collection")
    visit.page.wait_for_selector(".chart text")
    clipped = visit.page.evaluate(
        """() => [...document.querySelectorAll('.chart text')].filter((text) => {
            const inner = text.getBoundingClientRect();
            const outer = text.ownerSVGElement.getBoundingClientRect();
            return inner.left < outer.left || inner.right > outer.right
                || inner.top < outer.top || inner.bottom > outer.bottom;
        }).map((text) => text.textContent)"""
    )
    assert clipped == []
    assert "0 bits" in visit.page.locator(".chart").first.inner_text()


def test_the_api_is_described_without_other_hosts(page):
    page.click("nav >> text=API")
    page.wait_for_selector("details")
    assert page.locator("details").count() >= 15
    page.click("summary >> text=Search by an uploaded image")
    shown = page.inner_text("details[open]")
    assert "-F image=@photo.jpg" in shown
    assert "nearest_distance" in shown
    assert page.locator("text=openapi.json").get_attribute("href") == "openapi.json"


def test_ids_above_2_to_the_53_work(browser, tmp_path):  # noqa: F811
    large = 2**53 + 1
    index = create_index(tmp_path / "large.orbit", 8)
    index.add(np.array([1, large]), np.array([[0], [3]], dtype=np.uint8), [Metadata()] * 2)
    with live_server(index) as server:
        visit = Visit(browser, server.address)
        visit.page.goto(server.address + "?id=1")
        wait_for_results(visit.page, "id=1").first.click()
        wait_for_results(visit.page, f"id={large}")
        assert cards(visit.page).first.get_attribute("data-id") == "1"
        visit.close()
    assert visit.errors == []


def test_escape_does_not_close_the_key_dialog(browser, index_path):  # noqa: F811
    with live_server(index_path, with_keys()) as server:
        visit = Visit(browser, server.address)
        visit.page.goto(server.address)
        visit.page.wait_for_selector("#key-dialog:modal")
        for _ in range(3):
            visit.page.keyboard.press("Escape")
            visit.page.wait_for_selector("#key-dialog:modal")
        visit.page.fill("#key", READ_KEY)
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_selector("#grid .card img")
        visit.close()


def test_a_search_does_not_wait_for_the_statistics(visit):
    visit.page.route("**/api/v1/stats", lambda route: None)  # never responds
    visit.page.goto(visit.address + "?id=5")
    assert wait_for_results(visit.page, "id=5").count() == N_ITEMS - 1


def test_images_are_retried_after_503(failing):
    requests = []

    def reject_once(route):
        requests.append(route.request.url)
        if requests.count(route.request.url) == 1:
            route.fulfill(status=503)
        else:
            route.continue_()

    failing.page.route("**/thumbnail*", reject_once)
    failing.page.goto(failing.address + "?id=5")
    failing.page.wait_for_function(
        "() => document.querySelector('#grid .card img')?.naturalWidth > 0"
    )


@pytest.fixture(scope="module")
def copies_server(tmp_path_factory):
    """An index of 30 pairs of equal codes, and of a group of 15 within one bit."""
    folder = tmp_path_factory.mktemp("copies")
    codes = np.random.default_rng(0).integers(0, 256, (30, 8), dtype=np.uint8)
    near = np.zeros((15, 8), dtype=np.uint8)
    near[1::2, 0] = 1
    with create_index(folder / "copies.orbit", 64) as index:
        all_codes = np.concatenate([np.repeat(codes, 2, axis=0), near])
        index.add(codes=all_codes, metadata=[Metadata(f"{i}.jpg") for i in range(len(all_codes))])
    with live_server(folder / "copies.orbit") as server:
        yield server


@pytest.fixture
def copies(browser, copies_server):  # noqa: F811
    visit = Visit(browser, copies_server.address)
    yield visit.page
    visit.close()
    assert visit.errors == []


def test_near_duplicates_are_shown_group_by_group(copies, copies_server):
    copies.goto(copies_server.address)
    copies.click("nav a[data-view=duplicates]")
    copies.wait_for_selector("#groups .card")
    assert copies.inner_text("#duplicates-summary") == "31 groups with 75 of 75 images"
    assert copies.evaluate("document.activeElement.id") == "duplicates-title"
    first = copies.locator("#groups .panel").first
    assert first.locator("h2").inner_text() == "1. 15 images, up to 1 bit from the first"
    assert first.locator(".card").count() == 12
    first.get_by_role("button", name="Show 3 more").click()
    first.locator(".card").nth(14).wait_for()
    assert first.locator("button").is_hidden()
    assert copies.inner_text("#pager") == "Groups 1 to 20 of 31\nNext"
    copies.click("#pager a")
    copies.wait_for_function(
        "() => document.querySelector('#pager').innerText.includes('21 to 31')"
    )
    assert copies.url.endswith("?view=duplicates&from=20")
    copies.go_back()
    copies.wait_for_function("() => document.querySelector('#pager').innerText.includes('1 to 20')")


def test_the_radius_of_near_duplicates_is_in_the_url_and_does_not_restrict_searches(
    copies, copies_server
):
    copies.goto(f"{copies_server.address}?view=duplicates")
    copies.wait_for_selector("#groups .card")
    assert copies.inner_text("#within-shown") == "3 bits"
    copies.fill("#within", "0")
    copies.wait_for_url("**/?view=duplicates&within=0")
    copies.wait_for_function(
        "() => document.querySelector('#groups h2').innerText.includes('8 images')"
    )
    assert copies.inner_text("#duplicates-summary") == "32 groups with 75 of 75 images"
    copies.reload()
    copies.wait_for_selector("#groups .card")
    assert copies.inner_text("#within-shown") == "0 bits"
    copies.locator("#groups .card").first.click()
    assert wait_for_results(copies, "id=60").count() == 24
    assert copies.inner_text("#radius-shown") == "any"
    copies.goto(f"{copies_server.address}?view=duplicates&from=500")
    copies.wait_for_selector("#pager a")
    assert copies.inner_text("#pager") == "Previous"
