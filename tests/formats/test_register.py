"""Formats of users: what register takes, and what is refused before a kernel runs."""

import copy
import pickle

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler import FormatRewriteRule, Size
from gnn_sparse_backend.formats import Indices, decompose
from gnn_sparse_backend.formats.composed.decompose import transposed
from gnn_sparse_backend.formats.composed.registry import find, words
from gnn_sparse_backend.formats.composed.spec import parse_format
from tests.formats.own import AXES, bitmap, columns_of_eight, infer_bitmap, infer_columns


@pytest.fixture
def table():
    """The table as it was, afterwards."""
    before = {each.name for each in words()}
    yield
    for each in words():
        if each.name not in before:
            gsb.formats.unregister(each.name)


@pytest.fixture
def registered(table):
    gsb.formats.register("bitmap", bitmap, infer_bitmap)
    gsb.formats.register("columns", columns_of_eight, infer_columns)


def matrix(m=29, n=23):
    rng = torch.Generator().manual_seed(0)
    found = torch.randn(m, n, dtype=torch.float64, generator=rng) * (torch.rand(m, n, generator=rng) < 0.3)
    found[:8, :5] = 1.0
    return found


def test_a_word_is_one_as_any_other(registered):
    dense = matrix()
    parts = decompose(dense, ["columns(8)", "bitmap(8)"])
    assert [str(piece.spec) for piece in parts.pieces] == ["columns(8)", "bitmap(8)"]
    values = parts.values_of(dense)
    assert torch.equal(parts.to_dense(values), dense)
    assert torch.equal(transposed(parts).to_dense(values), dense.T)
    assert parts.pieces[1].padding == 0
    graph = gsb.Graph.from_coo(*dense.nonzero().t(), dense.shape)
    assert decompose(graph, "bitmap(8)") is decompose(graph, "bitmap(8)")
    for copied in (copy.deepcopy(parts), pickle.loads(pickle.dumps(parts))):
        assert torch.equal(copied.to_dense(values), dense)
    for empty in (torch.zeros(0, 3), torch.zeros(3, 0), torch.zeros(9, 17)):
        assert decompose(empty, ["columns(8)", "bitmap(8)"]).nnz == 0


def test_what_is_kept_knows_whose_format_it_is(table):
    """Two formats of one name are two, also where they differ in what they call, or close over."""

    def family(factor):
        return lambda matrix, width: infer_bitmap(matrix, width * factor // factor)

    keys = set()
    for infer in (infer_bitmap, family(1), family(2), lambda matrix, width: infer_bitmap(matrix, width)):
        gsb.formats.register("bitmap", bitmap, infer, replace=True)
        keys.add(parse_format("bitmap(8)").key)
    assert len(keys) == 4 and all(key.startswith("bitmap(8)@") for key in keys)
    before = parse_format("bitmap(8)")
    gsb.formats.register("bitmap", bitmap, infer_bitmap, replace=True)
    assert parse_format("bitmap(8)") != before
    with pytest.raises(ValueError, match=r"'bitmap\(8\)' is registered with another definition"):
        parse_format(before.key)
    assert parse_format("bsr(8)").key == "bsr(8)"


def test_a_graph_keeps_what_two_formats_of_one_name_made_apart(table):
    graph = gsb.Graph.from_coo(*matrix().nonzero().t(), (29, 23))
    gsb.formats.register("bitmap", bitmap, infer_bitmap)
    before = decompose(graph, "bitmap(8)")
    gsb.formats.register("bitmap", columns_of_eight, infer_columns, replace=True)
    after = decompose(graph, "bitmap(8)")
    assert before.padding == 0 and after.padding > 0


@pytest.mark.short(6)
@pytest.mark.parametrize(
    "given, error, words",
    [
        (("bsr", bitmap, infer_bitmap), ValueError, "'bsr' is a format of this package; give yours another name"),
        (("Bit map", bitmap, infer_bitmap), ValueError, "lower-case letters, digits and _, got 'Bit map'"),
        (("other", 3, infer_bitmap), TypeError, "rule of 'other' must be a function, got int"),
        (("other", bitmap, None), TypeError, "'other' needs both a rule and an infer"),
        (("other", lambda: bitmap(8), infer_bitmap), TypeError, "must take the same numbers, got .* and .*width"),
        (("other", lambda *n: bitmap(8), infer_bitmap), TypeError, r"each a parameter, got <lambda>\(\*n\)"),
    ],
)
def test_what_is_no_format(given, error, words, table):
    with pytest.raises(error, match=words):
        gsb.formats.register(*given)


def test_names_are_taken_once(registered):
    with pytest.raises(ValueError, match=r"there is a format 'bitmap' already; .*unregister\('bitmap'\)"):
        gsb.formats.register("bitmap", bitmap, infer_bitmap)
    with pytest.raises(ValueError, match=r"unknown format 'bitmaps\(8\)'; .*csr.*registered are bitmap\(width\)"):
        decompose(matrix(), "bitmaps(8)")
    with pytest.raises(ValueError, match="bitmap takes 1 whole numbers"):
        decompose(matrix(), "bitmap")
    gsb.formats.unregister("bitmap")
    assert find("bitmap") is None
    with pytest.raises(ValueError, match="there is no format 'bitmap'"):
        gsb.formats.unregister("bitmap")
    with pytest.raises(ValueError, match="'csr' is a format of this package, which stays"):
        gsb.formats.unregister("csr")


def rule_of(*axes, **changed):
    """The rule of columns of eight, changed."""
    good = columns_of_eight(8)
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__} | changed
    return lambda height: FormatRewriteRule(**fields)


@pytest.mark.short(7)
@pytest.mark.parametrize(
    "rule, error, words",
    [
        (lambda height: "bsr", TypeError, "its rule must give a .*FormatRewriteRule, got str"),
        (rule_of(axes_before=("R", "J")), ValueError, r"rewrite the axes \('I', 'J'\) of a matrix, got \('R', 'J'\)"),
        (rule_of(axes_after=("IO", "JO", "KI")), ValueError, "there is no axis 'KI' among its axes I, IO, JO, II"),
        (rule_of(axis_map={"I": ("JO",), "J": ("IO", "II")}), ValueError, "its rows hang on its columns|dense root"),
        (
            rule_of(inverse_index_map=lambda io, jo, ii: (ii * 4 + io, jo)),
            ValueError,
            r"row IO \* 8 \+ the place in the block is wanted",
        ),
        (rule_of(inverse_index_map=lambda io, jo, ii: io), ValueError, "must give a row and a column"),
        (rule_of(sizes=(Size("mb"),)), ValueError, "the size nnz is none of its sizes"),
    ],
)
def test_rules_that_no_kernel_can_have(rule, error, words, table):
    gsb.formats.register("own", rule, lambda matrix, height: infer_columns(matrix, height))
    with pytest.raises(error, match=words):
        gsb.composed_spmm(decompose(matrix(), ["own(8)", "csr"]), torch.ones(1), torch.ones(1, 1))


def changed(**given):
    """What infers columns of eight, with arrays changed by functions of the right ones."""

    def infer(matrix, height):
        found = infer_columns(matrix, height)
        arrays = dict(found.arrays)
        parts = {"slots": found.slots, "taken": found.taken}
        for name, change in given.items():
            of = parts if name in parts else arrays
            of[name] = change(of[name])
        return Indices({name: each for name, each in arrays.items() if each is not None}, **parts)

    return infer


def put(at, value):
    return lambda array: array.clone().index_fill_(0, torch.tensor([at]), value)


@pytest.mark.short(16)
@pytest.mark.parametrize(
    "infer, error, words",
    [
        (lambda matrix, height: 3, TypeError, "infer must give gsb.formats.Indices, got int"),
        (changed(indices=put(2, 23)), ValueError, r"indices must lie in \[0, 23\), got 23 at 2"),
        (changed(indices=put(0, -1)), ValueError, r"indices must lie in \[0, 23\), got -1 at 0"),
        (changed(indices=lambda array: array[1:]), ValueError, r"indices must have \d+ entries, got shape"),
        (
            changed(indices=lambda array: array.double()),
            TypeError,
            "indices must be a tensor of integers, got torch.flo",
        ),
        (
            changed(indices=lambda array: None),
            ValueError,
            "the arrays lack indices; the rule names indices, indptr, mb",
        ),
        (changed(indptr=put(1, 99)), ValueError, r"indptr must ascend from 0 to \d+, the elements of axis JO"),
        (changed(mb=lambda mb: mb + 1), ValueError, "axis IO stands for 8 rows each, so that 4 are wanted of 29 rows"),
        (changed(nnz=lambda nnz: -nnz), ValueError, "size nnz must be a whole number, at least 0, got -"),
        (changed(slots=lambda slots: slots[:-1]), ValueError, r"there are \d+ slots for \d+ non-zeros that are taken"),
        (changed(slots=put(0, 10**6)), ValueError, r"slots must lie in \[0, \d+\), got 1000000 at 0"),
        (changed(slots=lambda slots: slots.clone().index_copy_(0, torch.tensor([1]), slots[:1])), ValueError, "2 non-"),
        (
            changed(slots=lambda slots: slots[torch.tensor([1, 0, *range(2, len(slots))])]),
            ValueError,
            r"infer puts the non-zero at \(0, 0\) into slot 8, which by the rule is at \(0, 1\)",
        ),
        (
            changed(taken=lambda taken: torch.cat([taken.nonzero()[:1, 0], taken.nonzero()[:-1, 0]])),
            ValueError,
            r"the non-zero at \(0, 0\) is taken twice",
        ),
        (changed(taken=lambda taken: taken[:-1]), ValueError, r"taken has \d+ entries, and the matrix \d+ non-zeros"),
        (
            changed(taken=lambda taken: taken.nonzero()[:, 0] + 999),
            ValueError,
            r"taken must lie in \[0, \d+\), got 999",
        ),
    ],
)
def test_arrays_that_disagree(infer, error, words, table):
    gsb.formats.register("own", columns_of_eight, infer)
    with pytest.raises(error, match=words) as told:
        decompose(matrix(), ["own(8)", "csr"], fill=0.6)
    assert "own(8)" in str(told.value)


def test_padding_is_said_by_the_rule(table):
    gsb.formats.register("own", rule_of(masked=False), lambda matrix, height: infer_columns(matrix, height))
    with pytest.raises(ValueError, match=r"slot \d+ has no non-zero; a rule that stores padding says masked=True"):
        decompose(matrix(), ["own(8)", "csr"])


def test_the_last_format_takes_all(registered):
    def some(matrix, width):
        return infer_bitmap(matrix.those(matrix.rows < 3), width, matrix.rows < 3)

    gsb.formats.register("some", bitmap, lambda matrix, width: some(matrix, width))
    dense = matrix()
    left = int((dense[3:] != 0).sum())
    with pytest.raises(ValueError, match=rf"some\(8\) is the last format and leaves {left} non-zeros; put one behind"):
        decompose(dense, "some(8)")
    parts = decompose(dense, ["some(8)", "csr"])
    assert torch.equal(parts.to_dense(parts.values_of(dense)), dense)


def test_axes_of_the_tests_are_those_of_the_page():
    assert AXES == {"bitmap": ("I", "J8", "P"), "columns": ("IO", "JO", "II")}
