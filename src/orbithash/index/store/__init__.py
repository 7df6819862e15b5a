"""An index on disk, in one folder."""
