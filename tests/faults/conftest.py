import pytest

from faults.disturbed import Zygote, can_disturb
from faults.tally import TALLY


def pytest_collection_modifyitems(items):
    for item in items:
        if "faults" in item.path.parts:
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    if not can_disturb():
        pytest.skip("needs Linux and gcc, to preload a library that disturbs files")
    process = Zygote(tmp_path_factory.mktemp("zygote"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def tally():
    return TALLY


def pytest_terminal_summary(terminalreporter):
    if lines := TALLY.lines():
        terminalreporter.section("faults: what was tried and what was lost")
        for line in lines:
            terminalreporter.line(line)
