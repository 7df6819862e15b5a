from orbithash.encoders import Epoch, RunRecord, Training

RECORD = RunRecord("triplet", 8)


def training(*scores: float | None) -> Training:
    epochs = (Epoch(n, 1.0, 0.1, validation_map=score) for n, score in enumerate(scores))
    return Training(RECORD, tuple(epochs), 1.23456)


def test_the_best_validated_epoch_was_kept():
    assert training(None, 0.5, None, 0.9, None, 0.7).best_epoch().number == 3
    assert training(0.5, 0.5).best_epoch().number == 0  # a later one must be better


def test_without_validation_the_last_epoch_was_kept():
    assert training(None, None).best_epoch().number == 1


def test_a_hasher_has_no_epochs():
    assert training().best_epoch() is None
    assert training().scores() == {
        "validation_map": None,
        "best_epoch": None,
        "epochs": 0,
        "seconds": 1.235,
    }
