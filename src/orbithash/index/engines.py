"""Every search engine, by the name that users choose it by."""

from orbithash.index.exact import ExactIndex
from orbithash.index.faiss import FaissGraphIndex, FaissIndex, FaissInvertedIndex
from orbithash.index.memory import MemoryIndex
from orbithash.index.milvus import MilvusIndex, MilvusInvertedIndex
from orbithash.index.multi_index import MultiIndex

# What can search the codes of a folder.
LOCAL: dict[str, type[MemoryIndex]] = {
    "exact": ExactIndex,
    "exact-mih": MultiIndex,
    "faiss": FaissIndex,
    "faiss-ivf": FaissInvertedIndex,
    "faiss-hnsw": FaissGraphIndex,
}
# What stores and searches on its own; its name opens an address.
REMOTE: dict[str, type[MilvusIndex]] = {"milvus": MilvusIndex, "milvus-ivf": MilvusInvertedIndex}

ENGINES: dict[str, type[MemoryIndex] | type[MilvusIndex]] = {**LOCAL, **REMOTE}
