"""Images or features in, codes out, however trained."""

from orbithash.encoders.encoding import EncodedRows, encode_source
from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.image_encoder import ImageEncoder
from orbithash.encoders.runs.run_folder import RunRecord, load, read_record, write_run

__all__ = [
    "EncodedRows",
    "FeatureEncoder",
    "ImageEncoder",
    "RunRecord",
    "encode_source",
    "load",
    "read_record",
    "write_run",
]
