"""Images or features in, codes out, however trained."""

from orbithash.encoders.feature_encoder import FeatureEncoder
from orbithash.encoders.run_folder import RunRecord, load, read_record, write_run

__all__ = ["FeatureEncoder", "RunRecord", "load", "read_record", "write_run"]
