"""Comparison of one query with 64 codes at a time: which of them are nearer than a limit.

Each differing bit counts 1, or a small weight of its own.

A search rejects nearly all of a database by this comparison, so it is written in LLVM's vector
instructions. LLVM's own vectoriser would use vectors of half the width and narrow every distance to
store it, which takes longer than computing it.
"""

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

CACHE_LINE = 64  # bytes

BYTE, FLAG = ir.IntType(8), ir.IntType(32)
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
            # Without it, some processors read memory at half the speed: they look ahead less far
            # in a loop that can end at any group. Beyond the end it does nothing.
            fetch_lanes(database, start + LANES)
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

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, row, _, first, upper = arguments
            different_bits, n_words = differences(
                context, builder, (queries, arguments[0]), row, (database, arguments[2]), first
            )
            total = codegen.alloca_once_value(builder, popcounts(builder, different_bits(ZERO)))
            with codegen.for_range(builder, n_words, start=ONE) as words:
                if word_by_word:
                    is_near = any_below(builder, builder.load(total), upper)
                    with builder.if_then(builder.not_(is_near)):
                        words.do_break()
                ones = popcounts(builder, different_bits(words.index))
                builder.store(builder.add(builder.load(total), ones), total)
            return lanes_below(builder, builder.load(total), upper)

        return types.uint64(queries, types.intp, database, types.intp, types.uint64), generate

    return intrinsic(emit)


def emit_lighter_lanes(
    typing_context: Any, queries: Any, masks: Any, query: Any, database: Any, start: Any, limit: Any
) -> Any:
    """Emit the code of `lighter_lanes`: a mask of the 64 codes whose weight is below the limit.

    The weight of a code is the sum of the weights of its differing bits. `masks` is (queries,
    digits, words): the bits whose weight has each binary digit, the highest digit first.
    """
    if queries.layout != "C" or masks.layout != "C" or database.layout != "C":
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, row, _, first, upper = arguments
        different_bits, n_words = differences(
            context, builder, (queries, arguments[0]), row, (database, arguments[3]), first
        )
        mask_array = context.make_array(masks)(context, builder, arguments[1])
        n_digits = codegen.unpack_tuple(builder, mask_array.shape, 3)[1]
        total = codegen.alloca_once_value(builder, ir.Constant(VECTOR, [0] * LANES))
        with codegen.for_range(builder, n_digits) as digits:
            weights = builder.load(total)
            builder.store(builder.add(weights, weights), total)
            row_offset = builder.add(builder.mul(row, n_digits), digits.index)
            with codegen.for_range(builder, n_words) as words:
                offset = builder.add(builder.mul(row_offset, n_words), words.index)
                mask = builder.load(builder.gep(mask_array.data, [offset]))
                ones = popcounts(
                    builder,
                    builder.and_(different_bits(words.index), broadcast(builder, mask, LANES)),
                )
                builder.store(builder.add(builder.load(total), ones), total)
        return lanes_below(builder, builder.load(total), upper)

    arguments = (queries, masks, types.intp, database, types.intp, types.uint64)
    return types.uint64(*arguments), generate


def emit_fetch_lanes(typing_context: Any, database: Any, start: Any) -> Any:
    """Emit the code of `fetch_lanes`: ask for the first words of the 64 codes from `start`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(database)(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), FLAG, FLAG, FLAG])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [BYTE.as_pointer()], kind)
        for line in range(0, 8 * LANES, CACHE_LINE):
            target = builder.gep(address, [ir.Constant(WORD, line)])
            # To be read (0), kept in all levels of the cache (3), data (1).
            builder.call(prefetch, [target, FLAG(0), FLAG(3), FLAG(1)])
        return context.get_dummy_value()

    return types.void(database, types.intp), generate


nearer_lanes: Any = make_nearer_lanes(word_by_word=False)
nearer_lanes_word_by_word: Any = make_nearer_lanes(word_by_word=True)
lighter_lanes: Any = intrinsic(emit_lighter_lanes)
fetch_lanes: Any = intrinsic(emit_fetch_lanes)


def differences(
    context: Any, builder: Any, queries: Any, row: Any, database: Any, first: Any
) -> tuple[Any, Any]:
    """Return a function that emits the differing bits of 64 codes in a word, and their words."""
    query_array, code_array = (
        context.make_array(kind)(context, builder, value) for kind, value in (queries, database)
    )
    n_words, n = codegen.unpack_tuple(builder, code_array.shape, 2)

    def different_bits(word: Any) -> Any:
        code_offset = builder.add(builder.mul(word, n), first)
        query_offset = builder.add(builder.mul(row, n_words), word)
        address = builder.bitcast(builder.gep(code_array.data, [code_offset]), VECTOR.as_pointer())
        query_word = builder.load(builder.gep(query_array.data, [query_offset]))
        code_words = builder.load(address, align=8)
        return builder.xor(code_words, broadcast(builder, query_word, LANES))

    return different_bits, n_words


def lanes_below(builder: Any, distances: Any, upper: Any) -> Any:
    """Emit a mask of the lanes below the limit."""
    mask = codegen.alloca_once_value(builder, ZERO)
    with builder.if_then(any_below(builder, distances, upper), likely=False):
        builder.store(mask_below(builder, distances, upper, LANES), mask)
    return builder.load(mask)


def any_below(builder: Any, distances: Any, upper: Any) -> Any:
    """Emit one comparison of the minima, which usually rejects all codes."""
    smallest = minima(builder, distances)
    return codegen.is_not_null(builder, mask_below(builder, smallest, upper, REGISTER_WORDS))


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
