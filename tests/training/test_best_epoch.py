import torch
from torch import nn

from orbithash.training.state import BestEpoch


def test_the_weights_of_the_best_score_come_back():
    network = nn.Linear(1, 1, bias=False)
    best = BestEpoch(network, patience=3)
    for weight, score in ((1.0, 0.2), (2.0, 0.5), (3.0, 0.4)):
        nn.init.constant_(network.weight, weight)
        best.offer(score)
    best.restore()
    assert network.weight.item() == 2.0


def test_patience_ends_after_so_many_scores_that_are_no_better():
    best = BestEpoch(nn.Linear(1, 1), patience=2)
    ended = []
    for score in (0.1, 0.3, 0.3, 0.2):
        best.offer(score)
        ended.append(best.exhausted())
    assert ended == [False, False, False, True]


def test_without_scores_the_network_stays_as_it_is():
    network = nn.Linear(1, 1, bias=False)
    best = BestEpoch(network, patience=1)
    nn.init.constant_(network.weight, 7.0)
    best.restore()
    assert torch.equal(network.weight, torch.tensor([[7.0]]))
    assert not best.exhausted()
