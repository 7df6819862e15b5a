import pytest
import torch


@pytest.fixture
def one_thread():
    """Networks this small are slower on two threads, and much slower beside other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
