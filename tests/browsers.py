"""Chromium, driven by Playwright; tests that need them are skipped if either is missing."""

import shutil

import pytest

# For running as root, without a display and without network access.
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
    """One browser for the whole test session."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


class Visit:
    """An open page, with its console errors and its requests to other hosts."""

    def __init__(self, browser, address: str, **options: object) -> None:
        self.address = address
        self._context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, **options}
        )
        self.page = self._context.new_page()
        self.page.set_default_timeout(120_000)  # long, for slow machines
        self.errors: list[str] = []
        self.expected_error: str | None = None  # console errors with this text are ignored
        self.foreign_requests: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._on_request)

    def _on_console(self, message) -> None:
        if self.expected_error and self.expected_error in message.text:
            return
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _on_request(self, request) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.foreign_requests.append(request.url)

    def close(self) -> None:
        self._context.close()
