"""An index in a collection of a Milvus server."""
