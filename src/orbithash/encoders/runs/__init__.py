"""A run's folder: the encoder, its record, and what it depends on."""
