"""Images or features in, codes out, however trained."""

from orbithash.encoders.answers import Answer, Hit, answers
from orbithash.encoders.encode_source import EncodedRows, encode_source
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.index_encoder import encoder_of, index_of_run
from orbithash.encoders.index_source import IndexReport, index_source
from orbithash.encoders.run_folder import RunRecord, load, read_record, write_run

__all__ = [
    "Answer",
    "EncodedRows",
    "FeatureEncoder",
    "Hit",
    "ImageEncoder",
    "IndexReport",
    "RunRecord",
    "answers",
    "encode_source",
    "encoder_of",
    "index_of_run",
    "index_source",
    "load",
    "read_record",
    "write_run",
]
