import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from one_line import refusals
from rcad.data.dataset import Dataset, Split, holdout, index_hash, parse_spec, resolve, subset
from rcad.errors import InputError

LABELS = st.lists(st.integers(0, 5), min_size=2, max_size=120).map(np.asarray)
SEEDS = st.integers(0, 2**70)
FRACTIONS = st.floats(0.01, 0.99)


def counts(y, classes):
    return np.asarray([(y == c).sum() for c in classes])


@given(LABELS, FRACTIONS, SEEDS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_holdout_parts_all_examples(y, fraction, seed, stratified):
    size = min(max(round(fraction * len(y)), 1), len(y) - 1)
    classes, whole = np.unique(y, return_counts=True)
    share = size * whole / len(y)
    if stratified and np.minimum(np.ceil(share.round(9)), whole - 1).sum() < size:
        with pytest.raises(InputError, match="every class to keep an example"):
            holdout(y, fraction, seed=seed)
        return
    train, val = holdout(y, fraction, seed=seed, stratified=stratified)
    assert np.array_equal(np.sort(np.concatenate([train, val])), np.arange(len(y)))
    assert len(val) == size
    again = holdout(y, fraction, seed=seed, stratified=stratified)
    assert np.array_equal(train, again[0])
    assert np.array_equal(val, again[1])
    if stratified:
        assert (np.abs(counts(y[val], classes) - share) < 1).all()
        assert (counts(y[train], classes) >= 1).all()


@given(LABELS, SEEDS, st.data())
@settings(max_examples=150, deadline=None)
def test_a_balanced_subset_is_balanced(y, seed, data):
    classes, whole = np.unique(y, return_counts=True)
    n = data.draw(st.integers(len(classes), len(classes) * int(whole.min())))
    index = subset(y, n, seed=seed)
    assert len(np.unique(index)) == len(index) == n
    assert np.array_equal(index, np.sort(index))
    taken = counts(y[index], classes)
    assert taken.max() - taken.min() <= 1
    assert np.array_equal(index, subset(y, n, seed=seed))
    smaller = subset(y, max(len(classes), n // 2), seed=seed)
    assert set(smaller) <= set(index), "one seed's subsets are nested"


def test_the_draws_are_fixed_for_good():
    """Records name index hashes: these must never change."""
    y = np.arange(20) % 4
    assert subset(y, 8, seed=0).tolist() == [1, 3, 4, 6, 8, 11, 14, 17]
    assert subset(y, 6, seed=2).tolist() == [1, 4, 6, 11, 12, 14]
    assert subset(y, 5, seed=7, balanced=False).tolist() == [1, 5, 6, 8, 19]
    assert holdout(y, 0.2, seed=0)[1].tolist() == [1, 12, 14, 15]


FEW = np.repeat([0, 1, 2], [5, 5, 2])
test_draws_that_cannot_be = refusals(
    (lambda: subset(FEW, 0, seed=0), "1 to 12 examples, but got 0"),
    (lambda: subset(FEW, 13, seed=0, balanced=False), "1 to 12 examples, but got 13"),
    (lambda: subset(FEW, 12, seed=0), "expected 4 examples of class 2 for a balanced subset of 12, but got 2"),
    (lambda: holdout(FEW[:1], seed=0), "at least 2 examples to hold some out, but got 1"),
)


def test_specs():
    assert parse_spec("cifar100[:2000]") == ("cifar100", 2000)
    assert parse_spec(" cifar100 ") == ("cifar100", None)
    assert parse_spec("folder/my[1].csv") == ("folder/my[1].csv", None)
    assert parse_spec("folder/my[1].csv[:9]") == ("folder/my[1].csv", 9)


BAD_SPECS = ("", "[:5]", "a[:0]", "a[5]", "a[:-5]", "a[:x]", "a[]", "a[1:5]", "a[:5.0]", "a[:²]")
test_bad_specs = refusals(*((spec, "expected .. but got") for spec in BAD_SPECS), of=parse_spec)


def test_the_hash_is_of_little_endian_int64():
    expected = hashlib.sha256(b"\x01" + bytes(7) + b"\x00\x01" + bytes(6)).hexdigest()
    assert index_hash(np.asarray([1, 256], dtype=np.int32)) == expected
    assert index_hash(np.asarray([1, 256], dtype=">i8")) == expected
    assert index_hash([256, 1]) != expected


def table(n, task="classification", **more):
    y = np.arange(n) % 4 if task == "classification" else np.linspace(0, 1, n, dtype=np.float32)
    return Dataset("t", task, Split(np.arange(n)[:, None], y), **more)


def test_resolve_with_an_own_test_set():
    data = table(200, test=Split(np.arange(30)[:, None], np.arange(30) % 4))
    found = resolve(data, n=80, balanced=True, validation=0.1, seed=3)
    assert (len(found.train), len(found.val), len(found.test)) == (72, 8, 30)
    assert found.test_source == "own"
    assert not set(found.train) & set(found.val)
    assert np.bincount(data.train.y[np.concatenate([found.train, found.val])]).tolist() == [20] * 4
    assert np.bincount(data.train.y[found.val]).tolist() == [2] * 4
    assert found.train_hash == index_hash(found.train)
    train, val, test = found.take(data)
    assert np.array_equal(train.x[:, 0], found.train)
    assert np.array_equal(val.x[:, 0], found.val)
    assert test.x.tolist() == data.test.x.tolist()


def test_resolve_without_a_test_set():
    data = table(100)
    found = resolve(data, n=None, validation=0.25, seed=0, test_fraction=0.2)
    parts = [found.train, found.val, found.test]
    assert ([len(p) for p in parts], found.test_source) == ([60, 20, 20], "held out")
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(100))
    other = resolve(data, n=40, validation=0.25, seed=0, test_fraction=0.2)
    assert other.test_hash == found.test_hash, "the size of the subset must not move the test examples"
    assert len(other.train) == 30
    none = resolve(data, n=None, validation=0.0, seed=0)
    assert (len(none.train), len(none.val)) == (80, 0)
    untested = resolve(data, validation=0.25, test_fraction=0.0)
    assert [len(part) for part in untested.take(data)] == [75, 25, 0]


def test_resolve_with_standard_splits():
    splits = tuple((np.asarray([i for i in range(20) if i % 5 != k]), np.arange(k, 20, 5)) for k in range(5))
    data = table(20, "regression", standard_splits=splits)
    assert resolve(data, validation=0.0).test.tolist() == splits[0][1].tolist()
    found = resolve(data, split=3, validation=0.25, seed=1)
    assert (found.test.tolist(), found.test_source) == (splits[3][1].tolist(), "standard")
    assert (sorted([*found.train, *found.val]), len(found.val)) == (splits[3][0].tolist(), 4)
    with pytest.raises(InputError, match="a standard split from 0 to 4 for t, but got 5"):
        resolve(data, split=5)
    with pytest.raises(InputError, match="there are no standard splits for t, but got 0"):
        resolve(table(20), split=0)
    for tested in (data, table(20, test=Split(np.zeros((3, 1)), np.arange(3)))):
        with pytest.raises(InputError, match="without a test set for test_fraction=0, but t has one"):
            resolve(tested, test_fraction=0.0)
