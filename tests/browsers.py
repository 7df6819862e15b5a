"""Debian's Chromium, driven by Playwright; without either, the tests that need them are skipped."""

import shutil

import pytest

# As root, without a screen, and on a closed network.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of a session."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


class Visit:
    """A page that is open, and what it complained of or asked other hosts for."""

    def __init__(self, browser, address: str, **options: object) -> None:
        self.address = address
        self._context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, **options}
        )
        self.page = self._context.new_page()
        self.page.set_default_timeout(120_000)  # of which only a slow machine needs most
        self.complaints: list[str] = []
        self.expected: str | None = None  # a complaint with this in it is none
        self.foreign: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._on_request)

    def _on_console(self, message) -> None:
        if self.expected and self.expected in message.text:
            return
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _on_request(self, request) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.foreign.append(request.url)

    def close(self) -> None:
        self._context.close()
