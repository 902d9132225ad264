"""Priorities of rows: 64 bits that a seed and the row's ids determine, wherever the row is read.

The rows of the s smallest priorities are a uniform sample without replacement, the same one in whatever order, pieces
and processes the rows come.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError

__all__ = ["row_priorities"]

Words = NDArray[np.uint64]

LONG = 512  # bytes of an id; longer ones are digested one by one, so that one of them does not hold up the others
NULL = np.uint64(0x6E756C6C)
# low bytes of a word that belong to a string with so many left
MASKS = np.array([2 ** (8 * count) - 1 for count in range(9)], np.uint64)


def row_priorities(ids: Any, seed: int) -> Words:
    """Pseudo-random 64-bit numbers of rows.

    Parameters
    ----------
    ids : pyarrow.Table with n_rows rows
        Id columns: numbers, booleans, text, bytes, decimals, dates and times, null or dictionary-encoded.
    seed : int
        Not negative.

    Returns
    -------
    ndarray of shape (n_rows,), uint64
        Equal for equal ids: −0.0 and 0.0 are equal, and so are all NaN, and text however it is encoded; dates and times
        are counts of the unit they are stored in.

    Raises
    ------
    InvalidInputError
        For an id column of lists or records.

    Notes
    -----
    Two rounds of the splitmix64 finaliser for a number and one more for each eight bytes of text. It is good for
    sampling, not against somebody who chooses ids to be sampled. Cost: some 20 ns a number.

    References
    ----------
    Steele, Lea and Flood (2014), Fast splittable pseudorandom number generators; the finaliser is Stafford's Mix13.
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    total = np.full(len(ids), start, np.uint64)
    for name in ids.column_names:
        column = ids[name]
        if column.num_chunks == 1:
            total ^= _hash(column.chunk(0), name)
        elif column.num_chunks:
            total ^= np.concatenate([_hash(chunk, name) for chunk in column.chunks])
        _mix(total)
    return total


def _mix(words: Words) -> Words:
    """Replace each word by a bijective function of it whose bits all depend on all of its bits."""
    words += np.uint64(0x9E3779B97F4A7C15)  # so that 0 is not mapped to 0
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _hash(values: Any, name: str) -> Words:
    import pyarrow as pa
    import pyarrow.types as pt

    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pt.is_null(kind):
        return np.full(len(values), NULL, np.uint64)
    if pt.is_integer(kind) or pt.is_boolean(kind):
        words = _hash_integers(values)
    elif pt.is_temporal(kind) and not pt.is_interval(kind):
        words = _hash_integers(values.view(pa.int32() if kind.bit_width == 32 else pa.int64()))
    elif pt.is_floating(kind):
        words = _hash_floats(values)
    elif pt.is_decimal(kind):
        words = _hash_bytes(values.view(pa.binary(kind.bit_width // 8)).cast(pa.large_binary()))
    else:
        try:
            words = _hash_bytes(values.cast(pa.large_binary()))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise InvalidInputError(
                f'id column "{name}" is of type {kind}; ids are numbers, text, bytes, dates or times: name such a '
                "column in source.id."
            ) from error
    if values.null_count:
        words[values.is_null().to_numpy(zero_copy_only=False)] = NULL
    return words


def _hash_integers(values: Any) -> Words:
    import pyarrow as pa
    import pyarrow.types as pt

    if not pt.is_uint64(values.type):
        values = values.cast(pa.int64())
    if values.null_count:
        values = values.fill_null(0)
    return _mix(values.to_numpy(zero_copy_only=False).astype(np.uint64))


def _hash_floats(values: Any) -> Words:
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    numbers += 0.0  # −0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan  # one of the many
    return _mix(numbers.view(np.uint64))


def _hash_bytes(values: Any) -> Words:
    """Hashes of a pyarrow array of large_binary, eight bytes of all strings at a time."""
    _, ends, content = values.buffers()
    if content is None or len(values) == 0:
        return _mix(np.zeros(len(values), np.uint64))
    offsets = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    padded = np.zeros(length + 8, np.uint8)
    padded[:length] = np.frombuffer(content, np.uint8)[first : first + length]
    words = np.ndarray((length + 1,), "<u8", padded, strides=(1,))  # the one at each byte
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    total = _mix(lengths.astype(np.uint64))
    alive = np.flatnonzero(lengths <= LONG)
    for done in range(0, LONG, 8):
        alive = alive[lengths[alive] > done]
        if len(alive) == 0:
            break
        left = np.minimum(lengths[alive] - done, 8)
        total[alive] = _mix(total[alive] ^ (words[starts[alive] + done] & MASKS[left]))
    for row in np.flatnonzero(lengths > LONG):
        digest = hashlib.blake2b(padded[starts[row] : starts[row] + lengths[row]].tobytes(), digest_size=8).digest()
        total[row] = np.frombuffer(digest, "<u8")[0]
    return total
