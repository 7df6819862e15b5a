import torch

from orbithash.training.state import Memory


def test_the_oldest_are_forgotten_first():
    memory = Memory(3)
    for number in range(4):
        memory.add(torch.full((2, 4), float(number), requires_grad=True), torch.full((2,), number))
    assert memory.labels.tolist() == [2, 3, 3]
    assert memory.embeddings[:, 0].tolist() == [2.0, 3.0, 3.0]
    assert not memory.embeddings.requires_grad
