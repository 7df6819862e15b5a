import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from coloured_images import coloured
from feature_files import clouds
from orbithash.data import LabelledFeatures, Split
from orbithash.encoders import Encoded, RunRecord
from orbithash.evaluation import evaluate_rows, worst_queries
from orbithash.experiments.report import evaluation_report
from orbithash.experiments.report.evaluation_report import (
    class_rows,
    nearest_rows,
    query_row,
    write_evaluation_report,
)

RECORD = RunRecord("order-aware", 8, source="photos", backbone="small-cnn")


def features(*, many_labels=False, with_split=True, classes=None):
    arrays = clouds(classes=4, per_class=9, many_labels=many_labels)
    n = len(arrays["labels"])
    split = Split(*(arrays[part] for part in ("train", "query", "database")))
    if not with_split:
        split = Split(np.arange(n))
    labels = arrays["labels"].astype(bool) if many_labels else arrays["labels"]
    return LabelledFeatures(arrays["features"], labels, split, classes=classes)


def encode_at_random(data, n_bits=8):
    """Return embeddings that say nothing about the labels, with many ties."""
    embeddings = np.random.default_rng(5).random((len(data), n_bits))
    return Encoded(np.arange(len(data)), embeddings, {})


def write(folder, data, **options):
    encoded = encode_at_random(data)
    scores = evaluate_rows(encoded, data)
    file = folder / "report.html"
    options = {"run": "runs/birds", "source": "photos", **options}
    write_evaluation_report(file, scores, encoded, data, RECORD, **options)
    return file.read_text(encoding="utf-8"), scores, encoded


def first_ten(encoded, data, query):
    """Sort the database by distance, then by row, and return the first ten rows."""
    bits = encoded.embeddings > 0.5
    rows = data.split.database if data.split.has_queries else np.delete(np.arange(len(data)), query)
    return sorted(rows, key=lambda row: (np.sum(bits[row] != bits[query]), row))[:10]


@pytest.mark.parametrize("many_labels", [False, True])
@pytest.mark.parametrize("with_split", [False, True])
def test_confusions_are_the_pairs_of_classes_among_the_first_ten(
    many_labels, with_split, monkeypatch
):
    monkeypatch.setattr(evaluation_report, "CHUNK", 5)
    data = features(many_labels=many_labels, with_split=with_split)
    encoded = encode_at_random(data)
    scores = evaluate_rows(encoded, data)
    queries = data.split.query if with_split else np.arange(len(data))
    own = {
        row: set(np.flatnonzero(label) if many_labels else [label])
        for row, label in enumerate(data.labels)
    }
    expected, sizes, looked_at = Counter(), Counter(), Counter()
    for query in queries:
        sizes.update(own[query])
        database = data.split.database if with_split else np.delete(np.arange(len(data)), query)
        n_right = max(sum(label in own[row] for row in database) for label in own[query])
        looked_at.update(dict.fromkeys(own[query], min(10, n_right)))
        for hit in first_ten(encoded, data, query)[:n_right]:
            if not own[query] & own[hit]:
                expected.update((a, b) for a in own[query] for b in own[hit])
    rows = class_rows(scores, encoded, data)
    assert {row.name: row.n_queries for row in rows} == {str(n): size for n, size in sizes.items()}
    assert [row.map for row in rows] == sorted(scores.map_by_class.values())
    found = {
        (int(pair.query_class), int(pair.result_class)): (pair.count, pair.share)
        for row in rows
        for pair in row.confusions
    }
    assert found == {
        (a, b): (count, pytest.approx(count / looked_at[a])) for (a, b), count in expected.items()
    }


@pytest.mark.parametrize("with_split", [False, True])
def test_the_nearest_of_a_query_are_those_of_a_search(with_split):
    data = features(with_split=with_split)
    encoded = replace(encode_at_random(data), embeddings=np.zeros((len(data), 8)))  # all are tied
    ((queries, nearest, distances),) = nearest_rows(encoded, data, np.array([8, 20]))
    assert queries.tolist() == [8, 20]
    assert nearest.tolist() == [first_ten(encoded, data, query) for query in (8, 20)]
    assert not distances.any()
    shown = query_row(encoded, data, 8, 0.5)
    assert [hit.row for hit in shown.hits] == first_ten(encoded, data, 8)
    assert [hit.related for hit in shown.hits] == [data.labels[hit.row] == 0 for hit in shown.hits]


def test_the_worst_queries_are_shown_with_their_images(tmp_path):
    images = coloured(tmp_path / "photos", classes=5)
    page, scores, encoded = write(tmp_path, images, notes=["3 images <cannot> be read."])
    worst = worst_queries(scores, encoded, images, 12)
    assert [value for _, value in worst] == sorted(scores.average_precision)[:12]
    shown = [int(row) for row in re.findall(r"query (\d+): ", page)]
    assert shown == [row for row, _ in worst]
    assert page.count('<figure class="related">') + page.count('<figure class="unrelated">') == 100
    thumbnails = re.findall(r"\.r(\d+) \{ background-image: url\(data:image/jpeg;base64,", page)
    assert set(map(int, thumbnails)) >= set(shown)
    assert f"MAP {scores.map:.4f} on photos" in page
    assert f"explain runs/birds photos --query {shown[0]} " in page
    assert "3 images &lt;cannot&gt; be read." in page


def test_a_report_loads_nothing(tmp_path):
    page, _, _ = write(tmp_path, coloured(tmp_path / "photos"))
    assert not re.findall(r"<(?:script|link)\b", page)
    assert set(re.findall(r'(?:src="|url\()(.{5})', page)) == {"data:"}


@pytest.mark.parametrize("many_labels", [False, True])
def test_features_without_images_are_shown_by_name_or_row(tmp_path, many_labels):
    data = features(many_labels=many_labels, classes=("ant", "bee", "cat", "<dog>"))
    page, scores, encoded = write(tmp_path, data)
    row = worst_queries(scores, encoded, data, 1)[0][0]
    assert f">row {row}\n" in page or f">row {row}<" in page
    assert "&lt;dog&gt;" in page
    assert set(scores.map_by_class) == {"ant", "bee", "cat", "<dog>"}
    named = replace(data, paths=tuple(f"a_b/{row}.jpg" for row in range(len(data))))
    assert f"{row}.jpg" in write(tmp_path, named)[0]


def test_a_faultless_encoder_has_no_confusions(tmp_path):
    data = features(classes=("ant", "bee", "cat", "dog"))
    encoded = Encoded(np.arange(len(data)), np.eye(4)[data.labels], {})
    scores = evaluate_rows(encoded, data)
    file = tmp_path / "report.html"
    write_evaluation_report(file, scores, encoded, data, RECORD, run="run", source="source")
    assert scores.map == 1
    assert "None: the first results of every query are right." in file.read_text()


def test_many_classes_are_cut_in_the_page_only(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation_report, "MAX_CLASSES", 25)
    labels = np.repeat(np.arange(30), 3)
    data = LabelledFeatures(np.zeros((90, 2), np.float32), labels, Split(np.arange(90)))
    page, scores, _ = write(tmp_path, data)
    assert len(scores.map_by_class) == 30
    table = page.partition("Classes, worst first")[2].partition("Most frequent confusions")[0]
    assert table.count('<th scope="row">') == 25
    assert "The next 5 classes" in page
    assert "The MAP of all 30 classes is in" in page
