"""Comparison of one query with 64 codes at a time: which of them are nearer than a limit.

A search rejects nearly all of a database by this comparison, so it is written in LLVM's vector
instructions. LLVM's own vectoriser would use vectors of half the width and narrow every distance to
store it, which takes longer than computing it.
"""

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from orbithash.kernels.hamming import popcount

LANES = 64  # codes that are compared together: the bits of a mask
REGISTER_WORDS = 8  # of the widest vector register; LLVM splits it where there is none
L1_WORDS = 4096  # 32 kB of codes, which stay in the L1 cache while a task's queries read them
MAX_QUERIES_PER_TASK = 32  # each code is read from memory once for all of them

WORD = ir.IntType(64)
VECTOR = ir.VectorType(WORD, LANES)
ZERO, ONE = ir.Constant(WORD, 0), ir.Constant(WORD, 1)
codegen: Any = cgutils  # numba's helpers for control flow, which have no types


@njit(cache=True, nogil=True)
def next_nearer(queries, query, database, start, stop, limit):  # type: ignore[no-untyped-def]
    """Find the next group of 64 codes of which some are nearer than `limit`.

    Return its first position and a mask of the nearer codes, whose lowest bit is the first code.
    The mask is 0 if there are none before `stop`. `queries` is (queries, words), `database` is
    (words, codes).
    """
    # One query reads codes from memory, which takes longer than comparing them: words that decide
    # nothing are not read. Several queries find them in the cache, where the branches cost more.
    word_by_word = queries.shape[0] == 1
    while start + LANES <= stop:
        if word_by_word:
            mask = nearer_lanes_word_by_word(queries, query, database, start, np.uint64(limit))
        else:
            mask = nearer_lanes(queries, query, database, start, np.uint64(limit))
        if mask != 0:
            return start, mask
        start += LANES
    mask = np.uint64(0)
    for i in range(start, stop):
        if distance_to(queries, query, database, i) < limit:
            mask |= np.uint64(1) << np.uint64(i - start)
    return start, mask


@njit(cache=True, nogil=True)
def distance_to(queries, query, database, position):  # type: ignore[no-untyped-def]
    distance = np.int64(0)
    for word in range(database.shape[0]):
        distance += np.int64(popcount(database[word, position] ^ queries[query, word]))
    return distance


@njit(cache=True, nogil=True)
def lowest_bit(mask):  # type: ignore[no-untyped-def]
    """Return the position of the lowest bit that is set."""
    return np.int64(popcount((mask & (~mask + np.uint64(1))) - np.uint64(1)))


@njit(cache=True, nogil=True)
def clear_lowest_bit(mask):  # type: ignore[no-untyped-def]
    return mask & (mask - np.uint64(1))


def make_nearer_lanes(*, word_by_word: bool) -> Any:
    """Return a compiled comparison: a mask of the 64 codes from `start` that are below the limit.

    The distance in the first words is a lower bound of the whole distance. With `word_by_word`, the
    comparison ends with the word in which none of the codes is below the limit any more.
    """

    def emit(
        typing_context: Any, queries: Any, query: Any, database: Any, start: Any, limit: Any
    ) -> Any:
        if queries.layout != "C" or database.layout != "C":
            return None  # numba then refuses arrays whose memory layout differs from the one below
        return (
            types.uint64(queries, types.intp, database, types.intp, types.uint64),
            partial(generate_comparison, queries, database, word_by_word),
        )

    return intrinsic(emit)


def generate_comparison(
    queries: Any,
    database: Any,
    word_by_word: bool,
    context: Any,
    builder: Any,
    signature: Any,
    arguments: Any,
) -> Any:
    """Emit the instructions of `nearer_lanes`."""
    _, row, _, first, upper = arguments
    query_array, code_array = (
        context.make_array(kind)(context, builder, arguments[number])
        for number, kind in ((0, queries), (2, database))
    )
    n_words, n = codegen.unpack_tuple(builder, code_array.shape, 2)

    def word_distances(word: Any) -> Any:
        """Emit the 64 distances in one word."""
        code_offset = builder.add(builder.mul(word, n), first)
        query_offset = builder.add(builder.mul(row, n_words), word)
        address = builder.bitcast(builder.gep(code_array.data, [code_offset]), VECTOR.as_pointer())
        query_word = builder.load(builder.gep(query_array.data, [query_offset]))
        code_words = builder.load(address, align=8)
        return popcounts(builder, builder.xor(code_words, broadcast(builder, query_word, LANES)))

    def any_below() -> Any:
        """Emit one comparison of the minima, which usually rejects all codes."""
        smallest = minima(builder, builder.load(total))
        return codegen.is_not_null(builder, mask_below(builder, smallest, upper, REGISTER_WORDS))

    total = codegen.alloca_once_value(builder, word_distances(ZERO))
    with codegen.for_range(builder, n_words, start=ONE) as loop:
        if word_by_word:
            with builder.if_then(builder.not_(any_below())):
                loop.do_break()
        builder.store(builder.add(builder.load(total), word_distances(loop.index)), total)
    mask = codegen.alloca_once_value(builder, ZERO)
    with builder.if_then(any_below(), likely=False):
        builder.store(mask_below(builder, builder.load(total), upper, LANES), mask)
    return builder.load(mask)


nearer_lanes: Any = make_nearer_lanes(word_by_word=False)
nearer_lanes_word_by_word: Any = make_nearer_lanes(word_by_word=True)


def popcounts(builder: Any, words: Any) -> Any:
    kind = ir.FunctionType(words.type, [words.type])
    name = f"llvm.ctpop.v{words.type.count}i64"
    return builder.call(codegen.get_or_insert_function(builder.module, kind, name), [words])


def minima(builder: Any, distances: Any) -> Any:
    """Reduce to one register of minima, halves against halves, which needs no shuffling."""
    for width in (LANES // 2, LANES // 4, LANES // 8):
        left, right = (
            builder.shuffle_vector(distances, distances, lane_numbers(range(first, first + width)))
            for first in (0, width)
        )
        distances = builder.select(builder.icmp_unsigned("<", left, right), left, right)
    return distances


def mask_below(builder: Any, distances: Any, limit: Any, width: int) -> Any:
    """Return a mask of the lanes that are below the limit."""
    is_below = builder.icmp_unsigned("<", distances, broadcast(builder, limit, width))
    return builder.bitcast(is_below, ir.IntType(width))


def broadcast(builder: Any, word: Any, width: int) -> Any:
    """Copy a word into every lane."""
    undefined = ir.Constant(ir.VectorType(WORD, width), ir.Undefined)
    first = builder.insert_element(undefined, word, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, lane_numbers([0] * width))


def lane_numbers(numbers: Any) -> Any:
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)
