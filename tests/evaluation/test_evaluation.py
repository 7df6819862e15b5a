from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import orbithash
from coloured_images import coloured
from feature_files import clouds, write_clouds
from indexed_runs import feature_run, image_run
from orbithash.cli import run
from orbithash.data import LabelledFeatures, Split, read_features
from orbithash.data.transforms import read_view
from orbithash.evaluation import Scores, encode_split, evaluate_codes, evaluate_rows

N_BITS = 12


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return orbithash.load(feature_run(tmp_path_factory.mktemp("run") / "run", n_bits=N_BITS))


def left_out_one_by_one(codes, labels):
    """Score each row as the only query, with all other rows as the database."""
    scored = []
    for row in range(len(codes)):
        others = np.delete(np.arange(len(codes)), row)
        related = (
            (labels[others] & labels[row]).any(axis=1)
            if labels.ndim == 2
            else (labels[others] == labels[row])
        )
        if related.any():
            scored.append(
                evaluate_codes(
                    codes[[row]], codes[others], labels[[row]], labels[others], n_bits=N_BITS
                )
            )
    return scored


@pytest.mark.parametrize("many_labels", [False, True])
def test_without_a_split_each_row_is_a_query_against_all_others(encoder, many_labels):
    arrays = clouds(per_class=6, many_labels=many_labels, seed=3)
    features, labels = arrays["features"], arrays["labels"]
    if not many_labels:
        labels[0] = 77  # alone in its class: nothing to find
    scores = orbithash.evaluate(encoder, (features, labels))
    literal = left_out_one_by_one(encoder.encode(features), labels)
    assert (scores.queries, scores.database) == (len(labels), len(labels) - 1)
    assert scores.queries_without_relevant == len(labels) - len(literal)
    assert scores.queries_without_relevant == (0 if many_labels else 1)
    assert scores.map == pytest.approx(np.mean([each.map for each in literal]), abs=1e-12)
    assert scores.ndcg == pytest.approx(np.mean([each.ndcg for each in literal]), abs=1e-12)
    bounds = np.mean([each.map_bounds for each in literal], axis=0)
    assert scores.map_bounds == pytest.approx(tuple(bounds), abs=1e-12)
    for n in scores.precision_at:
        mean = np.mean([each.precision_at[n] for each in literal])
        assert scores.precision_at[n] == pytest.approx(mean, abs=1e-12)


def test_with_a_split_every_query_is_searched_in_the_database(encoder, tmp_path):
    file = write_clouds(tmp_path / "clouds.npz")
    arrays = clouds()
    codes, labels = encoder.encode(arrays["features"]), arrays["labels"]
    query, database = arrays["query"], arrays["database"]
    split = (codes[query], codes[database], labels[query], labels[database])
    embeddings = encoder.embed(arrays["features"])[query]
    options = {"n_bits": N_BITS, "query_embeddings": embeddings}
    features = arrays["features"]
    teacher = {"query_teacher": features[query], "database_teacher": features[database]}
    reported = evaluate_codes(*split, **options, **teacher, recall_at=(1, 10), map_at_r=True)
    assert orbithash.evaluate(encoder, file) == reported
    assert 0 < reported.look < reported.look_asymmetric < 1
    data = read_features(file)
    encoded = encode_split(encoder, data)
    assert evaluate_rows(encoded, data) == evaluate_codes(*split, **options)
    assert evaluate_rows(encoded, data, precision_at=(3,)).precision_at.keys() == {3}


def test_images_are_scored_without_those_that_cannot_be_read(tmp_path):
    images = coloured(tmp_path / "photos")
    images.file(int(images.split.query[0])).write_text("no image")
    encoder = orbithash.load(image_run(tmp_path / "run"))
    scores = orbithash.evaluate(encoder, images)
    assert (scores.queries, scores.database) == (7, 24)
    rows = images.split.query[1:]
    database = images.split.database
    expected = evaluate_codes(
        encoder.encode([images.file(int(row)) for row in rows]),
        encoder.encode([images.file(int(row)) for row in database]),
        images.labels[rows],
        images.labels[database],
        n_bits=encoder.n_bits,
    )
    assert scores.map == pytest.approx(expected.map)


def test_the_look_of_images_is_that_of_the_backbones_features(tmp_path):
    images = coloured(tmp_path / "photos")
    images.file(int(images.split.query[0])).write_text("no image")
    encoder = orbithash.load(image_run(tmp_path / "run"))
    scores = orbithash.evaluate(encoder, images)
    query, database = images.split.query[1:], images.split.database
    pixels = {
        row: read_view(images.file(int(row)), **asdict(encoder.view)) for row in (*query, *database)
    }
    with torch.inference_mode():
        features = {
            row: encoder.backbone(torch.tensor(each).permute(2, 0, 1)[None].float())[0].numpy()
            for row, each in pixels.items()
        }
    codes = {row: encoder.encode([images.file(int(row))])[0] for row in pixels}
    expected = evaluate_codes(
        *(np.stack([codes[row] for row in rows]) for rows in (query, database)),
        *(images.labels[rows] for rows in (query, database)),
        n_bits=encoder.n_bits,
        query_teacher=np.stack([features[row] for row in query]),
        database_teacher=np.stack([features[row] for row in database]),
    )
    assert scores.look == pytest.approx(expected.look)
    assert scores.distinct_codes == expected.distinct_codes


def test_a_dataset_has_no_split(tmp_path):
    encoder = orbithash.load(image_run(tmp_path / "run"))
    pixels = torch.randint(0, 256, (9, 3, 16, 16), dtype=torch.uint8)
    scores = orbithash.evaluate(encoder, TensorDataset(pixels, torch.arange(9) % 3))
    assert (scores.queries, scores.database) == (9, 8)


def test_queries_in_the_database_are_warned_about(encoder, caplog):
    arrays, rows = clouds(), np.arange(100)
    split = Split(train=rows, query=rows[:10], database=rows)
    orbithash.evaluate(encoder, LabelledFeatures(arrays["features"], arrays["labels"], split))
    assert "10 queries are also in the database" in caplog.text


def test_the_command_scores_a_source_without_queries_as_python_does(tmp_path):
    arrays = clouds(per_class=6, seed=3)
    run_folder = tmp_path / "run"
    data = (arrays["features"], arrays["labels"])
    orbithash.train(data, N_BITS, method="lsh", out=run_folder)
    file = tmp_path / "unsplit.npz"
    rows = {"train": np.arange(len(arrays["labels"]))}
    np.savez(file, features=arrays["features"], labels=arrays["labels"], **rows)
    assert run(["evaluate", str(run_folder), str(file), "--out", str(tmp_path / "report")]) == 0
    written = Scores.from_json((tmp_path / "report" / "scores.json").read_text())
    assert written == orbithash.evaluate(orbithash.load(run_folder), data)
