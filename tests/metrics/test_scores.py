import dataclasses
import json

import numpy as np
import pytest

from orbithash.errors import InputError
from orbithash.metrics.scores import PrecisionRecall, Scores

SCORES = Scores(
    map=0.1 + 0.2,
    map_bounds=(0.25, 1 / 3),
    ndcg=0.5,
    precision_recall=PrecisionRecall(
        precision=np.array([np.nan, 0.75, 0.5]),
        recall=np.array([0.0, 0.1, 1.0]),
        precision_or_zero=np.array([0.0, 0.5, 0.5]),
        empty=np.array([1.0, 1 / 3, 0.0]),
    ),
    precision_at={1: 1.0, 10: 0.7},
    map_at={5: 0.4},
    map_at_found={5: 0.6},
    ties="expected",
    n_bits=4,
    queries=7,
    queries_without_relevant=2,
    database=100,
    map_by_class={"heron": 0.2, "7": 0.3},
    nothing_found_at={5: 0.25},
    map_at_r=0.35,
    recall_at={1: 0.5, 10: 0.75},
    look=0.3,
    look_asymmetric=0.4,
    distinct_codes=90,
    average_precision=np.array([0.1, np.nan, 0.5]),
)


def test_scores_are_read_as_they_were_written():
    assert Scores.from_json(SCORES.to_json()) == SCORES


def test_scores_of_earlier_versions_are_read_without_those_of_classes():
    values = json.loads(SCORES.to_json())
    del values["map_by_class"]
    again = Scores.from_json(json.dumps(values))
    assert again.map == SCORES.map
    assert again.map_by_class == {}


def test_scores_of_earlier_versions_are_read_without_later_scores():
    values = json.loads(SCORES.to_json())
    later = ("look", "look_asymmetric", "distinct_codes")
    for name in ("nothing_found_at", "map_at_r", "recall_at", *later):
        del values[name]
    for name in ("precision_or_zero", "empty"):
        del values["precision_recall"][name]
    again = Scores.from_json(json.dumps(values))
    assert (again.map, again.ndcg) == (SCORES.map, SCORES.ndcg)
    assert (again.map_at_r, again.recall_at, again.nothing_found_at) == (None, {}, {})
    assert (again.look, again.look_asymmetric, again.distinct_codes) == (None, None, None)
    assert again.precision_recall.recall.tolist() == [0.0, 0.1, 1.0]
    assert again.precision_recall.empty.size == 0
    assert Scores.from_json(again.to_json()) == again


def test_scores_of_groups_of_queries_are_read_as_they_were_written():
    scores = dataclasses.replace(SCORES, transfer={"unseen in all": SCORES}, prefixes={2: SCORES})
    assert Scores.from_json(scores.to_json()) == scores


def test_nan_is_written_as_null():
    written = json.loads(SCORES.to_json(), parse_constant=pytest.fail)
    assert written["precision_recall"]["precision"] == [None, 0.75, 0.5]


def test_scores_with_another_curve_are_not_equal():
    curve = dataclasses.replace(SCORES.precision_recall, precision=np.array([np.nan, 0.75, 0.4]))
    assert dataclasses.replace(SCORES, precision_recall=curve) != SCORES


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"map": 1}'])
def test_text_without_scores_is_refused(text):
    with pytest.raises(InputError, match=r"Scores\.to_json"):
        Scores.from_json(text)
