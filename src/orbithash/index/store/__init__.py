"""An index on disk: one folder."""
