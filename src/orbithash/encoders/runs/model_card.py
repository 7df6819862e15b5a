"""The model card of an encoder: what it is, how it was trained, how good it is, how to use it."""

import json
import math
from typing import Any

from orbithash.encoders.encoder import Encoder
from orbithash.encoders.runs.record import RunRecord, Training
from orbithash.metrics.scores import Scores

CARD = """{metadata}

# {name}

An encoder of {inputs} as binary codes of {n_bits} bits, trained with orbithash. Similar items have
codes at a small Hamming distance.

## Use

`pip install 'orbithash[hub]'`, then{extra}:

```python
import orbithash

encoder = orbithash.load("hf:{repository}")
codes = encoder.encode({example})  # uint8 (n, {n_bytes}), {n_bits} bits per item
```

## Scores

{scores}

## Training

{training}

## Limits

Distances mean what the labels of the training data meant. The scores do not cover other classes,
other cameras or the features of other networks: score your own data with `orbithash evaluate`.
"""


def model_card(
    encoder: Encoder,
    record: RunRecord,
    repository: str,
    *,
    scores: Scores | None = None,
    license: str | None = None,
) -> str:
    """Return the text of the card, Markdown with metadata in YAML."""
    name = repository.rpartition("/")[2]
    training = encoder.training
    return CARD.format(
        metadata=metadata(encoder, record, name, scores, license),
        name=name,
        inputs="images" if encoder.takes_images else f"vectors of {encoder.n_features} numbers",
        n_bits=encoder.n_bits,
        n_bytes=math.ceil(encoder.n_bits / 8),
        repository=repository,
        example='["a.jpg", "b.jpg"]' if encoder.takes_images else "vectors",
        extra=extra_note(record),
        scores="Not given." if scores is None else score_table(scores),
        training="Not recorded." if training is None else training_table(training, record),
    )


def metadata(
    encoder: Encoder,
    record: RunRecord,
    name: str,
    scores: Scores | None,
    license: str | None,
) -> str:
    """Return the head of the card: YAML, each value written as JSON, which YAML includes."""
    values: dict[str, Any] = {
        "library_name": "orbithash",
        "tags": ["hashing", "binary-codes", "image-retrieval", "metric-learning"],
    }
    if license is not None:
        values["license"] = license
    if encoder.takes_images:
        values["pipeline_tag"] = "image-feature-extraction"
    if scores is not None:
        source = record.source or "unknown"
        result = {
            "task": {"type": "image-retrieval"},
            "dataset": {"type": source, "name": source},
            "metrics": [{"type": "map", "name": "MAP", "value": round(scores.map, 4)}],
        }
        values["model-index"] = [{"name": name, "results": [result]}]
    lines = [f"{key}: {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---"])


def extra_note(record: RunRecord) -> str:
    if (record.backbone or "").startswith("transformers"):
        return " (the backbone also needs the extra `transformers`)"
    return ""


def score_table(scores: Scores) -> str:
    low, high = scores.map_bounds
    rows = {
        "MAP": f"{scores.map:.4f}",
        "MAP, over all orders of ties": f"{low:.4f} … {high:.4f}",
        "MAP, asymmetric": optional(scores.map_asymmetric),
        "MAP@R": optional(scores.map_at_r),
        "NDCG": f"{scores.ndcg:.4f}",
        **{f"recall@{n}": f"{value:.4f}" for n, value in scores.recall_at.items()},
        "queries": str(scores.queries),
        "database": str(scores.database),
        "distinct codes in the database": str(scores.distinct_codes or ""),
    }
    return table(("score", "value"), rows)


def training_table(training: Training, record: RunRecord) -> str:
    best = training.best_epoch()
    rows = {
        "data": record.source,
        "method": record.method,
        "bits": str(record.n_bits),
        "nested lengths": ", ".join(map(str, record.prefixes())),
        "backbone": record.backbone or "",
        "part that learned": record.tune or "",
        "classes held out": ", ".join(record.held_out_classes),
        "labels": "not used" if record.labels == "none" else "",
        "preset": record.preset,
        "options": short_json(record.options),
        "settings": short_json(record.settings),
        "seed": str(record.seed),
        "epochs": str(best.number + 1) if best else "",
        "validation MAP": optional(best.validation_map if best else None),
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }
    return table(("", ""), rows)


def table(head: tuple[str, str], rows: dict[str, str]) -> str:
    """Return a table of the rows that have a value."""
    given = [(name, value) for name, value in rows.items() if value]
    cells = [head, ("---", "---"), *given]
    return "\n".join(f"| {name} | {escaped(value)} |" for name, value in cells)


def escaped(text: str) -> str:
    """Keep a name from ending a cell, or from being HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def short_json(values: Any) -> str:
    return f"`{json.dumps(dict(values), default=str)}`" if values else ""


def optional(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
