"""Sixty-four codes at once: which of them are nearer to a query than a limit.

Nearly all of a database is dismissed by this question, so it is put in vector instructions of our
own. Left to itself, LLVM would halve the width of the vectors and narrow every distance to store
it, which takes longer than to compute it.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from orbithash.kernels.popcount import popcount

LANES = 64  # codes that are compared together: as many as a mask has bits
REGISTER = 8  # words in the widest vector register there is; LLVM splits it where there is none
L1_WORDS = 4096  # 32 kB: what the queries of a task go through in turn stays in the first cache
TOGETHER = 32  # queries of one task, at most: each code is read from memory once for all of them

WORD = ir.IntType(64)
VECTOR = ir.VectorType(WORD, LANES)
blocks: Any = cgutils  # numba's own shorthands for control flow, which have no types
ZERO, ONE = ir.Constant(WORD, 0), ir.Constant(WORD, 1)


@njit(cache=True, nogil=True)
def next_nearer(queries, query, database, start, stop, limit):  # type: ignore[no-untyped-def]
    """Where the next codes of which some are nearer than `limit` begin, and a mask of those.

    The lowest bit of the mask is the first code's; it is 0 when there are none up to `stop`.
    `database` is laid out by `as_words`; `queries` are rows of words, one of which is asked for.
    """
    while start + LANES <= stop:
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
def lowest(mask):  # type: ignore[no-untyped-def]
    """The place of a mask's lowest bit."""
    return np.int64(popcount((mask & (~mask + np.uint64(1))) - np.uint64(1)))


@njit(cache=True, nogil=True)
def without_lowest(mask):  # type: ignore[no-untyped-def]
    return mask & (mask - np.uint64(1))


def emit_nearer(
    typing_context: Any, queries: Any, query: Any, database: Any, start: Any, limit: Any
) -> Any:
    """Which of 64 codes are nearer than a limit, whatever the number of words."""
    if queries.layout != "C" or database.layout != "C":
        return None  # so that numba refuses what lies in memory otherwise than is assumed here

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, number, _, first, most = arguments
        asked, codes = (
            context.make_array(kind)(context, builder, arguments[place])
            for place, kind in ((0, queries), (2, database))
        )
        n_words, n = blocks.unpack_tuple(builder, codes.shape, 2)

        def distances_by(word: Any) -> Any:
            their_place = builder.add(builder.mul(word, n), first)
            our_place = builder.add(builder.mul(number, n_words), word)
            address = builder.bitcast(builder.gep(codes.data, [their_place]), VECTOR.as_pointer())
            ours = builder.load(builder.gep(asked.data, [our_place]))
            theirs = builder.load(address, align=8)
            return popcounts(builder, builder.xor(theirs, spread(builder, ours, LANES)))

        total = blocks.alloca_once_value(builder, distances_by(ZERO))
        with blocks.for_range_slice(builder, ONE, n_words, ONE) as (word, _):
            builder.store(builder.add(builder.load(total), distances_by(word)), total)
        distances = builder.load(total)
        # One comparison dismisses all; only where it does not, each code is compared.
        some = below(builder, minima(builder, distances), most, REGISTER)
        mask = blocks.alloca_once_value(builder, ZERO)
        with builder.if_then(blocks.is_not_null(builder, some), likely=False):
            builder.store(below(builder, distances, most, LANES), mask)
        return builder.load(mask)

    return types.uint64(queries, types.intp, database, types.intp, types.uint64), generate


nearer_lanes: Any = intrinsic(emit_nearer)


def popcounts(builder: Any, words: Any) -> Any:
    kind = ir.FunctionType(words.type, [words.type])
    name = f"llvm.ctpop.v{words.type.count}i64"
    return builder.call(blocks.get_or_insert_function(builder.module, kind, name), [words])


def minima(builder: Any, distances: Any) -> Any:
    """One register of the least distances: halves against halves, which costs no shuffling."""
    for width in (LANES // 2, LANES // 4, LANES // 8):
        left, right = (
            builder.shuffle_vector(distances, distances, lanes(range(first, first + width)))
            for first in (0, width)
        )
        distances = builder.select(builder.icmp_unsigned("<", left, right), left, right)
    return distances


def below(builder: Any, distances: Any, limit: Any, width: int) -> Any:
    """A mask of the lanes that are below the limit."""
    smaller = builder.icmp_unsigned("<", distances, spread(builder, limit, width))
    return builder.bitcast(smaller, ir.IntType(width))


def spread(builder: Any, word: Any, width: int) -> Any:
    """The same word in every lane."""
    nothing = ir.Constant(ir.VectorType(WORD, width), ir.Undefined)
    first = builder.insert_element(nothing, word, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, nothing, lanes([0] * width))


def lanes(numbers: Any) -> Any:
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)
