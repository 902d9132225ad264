"""Columns become features as scikit-learn's transformers make them, in one pass, and later rows as the fit's."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from scalable_kpca.errors import InvalidInputError, NotFiniteError, RowError
from scalable_kpca.source import Preparation, PreparedSource, Recipe, open_source, prepare_columns, sample_columns
from scalable_kpca.source import column_statistics as statistics
from scalable_kpca.source.survey import survey
from tests.support import EPS

NULLS = ["drop", "impute:mean", "impute:median", "impute:constant"]


def table_of(n, seed=0, *, holes=0.1, dtype=np.float64):
    """Two numeric columns far from 0 and a small one, a text and an integer column of categories; some are missing."""
    rng = np.random.default_rng(seed)
    holes = rng.random((5, n)) < holes
    columns = {
        "id": pa.array(np.arange(n)),
        "far": pa.array(1e6 + rng.standard_normal(n).astype(dtype), mask=holes[0]),
        "wide": pa.array(rng.exponential(1e3, n).astype(dtype), mask=holes[1]),
        "small": pa.array(rng.integers(0, 5, n).astype(np.int32), mask=holes[2]),
        "carrier": pa.array(rng.choice(["UA", "AA", "9E", "B6"], n), mask=holes[3]),
        "month": pa.array(rng.choice([1, 2, 10], n), mask=holes[4]),
    }
    return pa.table(columns)


def write(folder, table, *, parts=3, row_group_size=7):
    folder.mkdir(exist_ok=True, parents=True)
    bounds = np.linspace(0, len(table), parts + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        pq.write_table(table.slice(start, stop - start), folder / f"{number}.parquet", row_group_size=row_group_size)
    return folder


def opened(folder, **options):
    return open_source(str(folder), folder, **{"id_columns": ["id"], "categorical": ["carrier", "month"]} | options)


def rows_of(batches):
    found = list(batches)
    return np.concatenate([batch.rows for batch in found]), [i for b in found for i in b.labels["id"].to_pylist()]


def reference(table, recipe):
    """The same by scikit-learn, and the ids of the rows that stay."""
    frame = table.to_pandas()
    numeric = ["far", "wide", "small"]
    for name in ("carrier", "month"):
        texts = [None if value is None else str(value) for value in table[name].to_pylist()]
        frame[name] = np.array(texts, object)
        frame[name] = frame[name].astype(object)
        frame.loc[[text is None for text in texts], name] = None
    if recipe.nulls == "drop":
        frame = frame.dropna()
    strategy = recipe.nulls.removeprefix("impute:") if recipe.imputes else "mean"
    steps = [SimpleImputer(strategy=strategy, fill_value=recipe.fill)]
    steps += [StandardScaler()] if recipe.standardize else []
    months = ["1", "2", "10"] + ([None] if frame["month"].isna().any() else [])
    carriers = ["9E", "AA", "B6", "UA"] + ([None] if frame["carrier"].isna().any() else [])
    encoder = OneHotEncoder(categories=[carriers, months], sparse_output=False)
    columns = ColumnTransformer([("n", make_pipeline(*steps), numeric), ("c", encoder, ["carrier", "month"])])
    return columns.fit_transform(frame.astype(dict.fromkeys(numeric, float))), frame["id"].tolist()


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("n", [1, 2, 50, 401])
def test_features_are_those_of_scikit_learns_transformers(tmp_path, n, nulls, standardize):
    table = table_of(n, holes=0.1 if n > 2 else 0)
    recipe = Recipe(nulls, fill=-3.0, standardize=standardize)
    raw = opened(write(tmp_path, table))
    source = prepare_columns(raw, recipe)
    expected, ids = reference(table, recipe)
    found, found_ids = rows_of(source.batches())
    assert found_ids == ids
    assert source.n_samples == len(ids) == sum(part.n_rows for part in source.parts)
    assert len(source.feature_names) == expected.shape[1] or n < 50
    if n < 50:  # scikit-learn was told of categories that so few rows do not have
        expected = expected[:, (expected != 0).any(axis=0) | (np.arange(expected.shape[1]) < 3)]
    # a mean near 1e6 over n values is off by n·eps·1e6 at most, and a standard deviation of 1 divides it
    assert found == pytest.approx(expected, rel=1e-12, abs=4 * n * EPS * 1e6)


@pytest.mark.parametrize("nulls", ["drop", "impute:median"])
@pytest.mark.parametrize("span_rows", [1, 3, 20, 1000])
def test_spans_are_the_batches_cut_and_ids_stay_with_their_rows(tmp_path, span_rows, nulls):
    source = prepare_columns(opened(write(tmp_path, table_of(200), row_group_size=40)), Recipe(nulls, standardize=True))
    expected, ids = rows_of(source.batches())
    spans = source.spans(span_rows)
    assert [span.start for span in spans] == np.cumsum([0, *(span.n_rows for span in spans[:-1])]).tolist()
    assert all(1 <= span.n_rows <= span_rows for span in spans)
    for batch_rows in (1, 7, 1000):
        batches = [batch for span in spans for batch in span.batches(batch_rows, "ids")]
        assert all(len(batch.rows) <= batch_rows for batch in batches)
        assert [batch.start for batch in batches] == np.cumsum([0, *(len(b.rows) for b in batches[:-1])]).tolist()
        found, found_ids = rows_of(batches)
        assert np.array_equal(found, expected)
        assert found_ids == ids


def test_rows_without_an_id_keep_their_numbers_when_others_are_left_out(tmp_path):
    table = table_of(100).drop_columns(["id"])
    source = prepare_columns(opened(write(tmp_path, table), id_columns=[]), Recipe("drop"))
    kept = np.flatnonzero(table.to_pandas().notna().all(axis=1))
    assert source.label_names == ("row",)
    for batches in (source.batches(), (batch for span in source.spans(9) for batch in span.batches(4, "ids"))):
        assert [row for batch in batches for row in batch.labels["row"].to_pylist()] == kept.tolist()


def test_files_of_which_nothing_is_kept_stay_parts(tmp_path):
    table = pa.table({"id": range(9), "x": pa.array([1.0, 2, 3, None, None, None, 4, 5, 6])})
    source = prepare_columns(opened(write(tmp_path, table), categorical=[]), Recipe("drop"))
    assert [part.n_rows for part in source.parts] == [3, 0, 3]
    assert [(span.part, span.n_rows) for span in source.spans(100)] == [(0, 3), (2, 3)]
    assert rows_of(source.batches())[1] == [0, 1, 2, 6, 7, 8]


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=60),
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_statistics_do_not_depend_on_where_blocks_end_but_for_rounding(values, cuts):
    numbers = np.array([np.nan if value is None else value for value in values]).reshape(-1, 1)
    found, at = statistics.ColumnStatistics.empty(1), 0
    for size in itertools.cycle(cuts):
        if at >= len(numbers):
            break
        found.add(numbers[at : at + size])
        at += size
    there = numbers[~np.isnan(numbers)]
    assert found.count.tolist() == [len(there)]
    assert found.missing.tolist() == [len(numbers) - len(there)]
    if len(there):
        scale = np.abs(there).max()
        assert found.mean[0] == pytest.approx(there.mean(), abs=8 * len(there) * EPS * scale)
        assert found.squares[0] == pytest.approx(
            ((there - there.mean()) ** 2).sum(), abs=64 * len(there) ** 2 * EPS * scale**2
        )
        assert (found.low[0], found.high[0]) == (there.min(), there.max())


def test_medians_of_more_rows_than_the_sample_holds_are_near_and_do_not_depend_on_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, "SAMPLE_ROWS", 500)
    values = np.random.default_rng(3).standard_normal(20_000)
    found = []
    for row_group_size in (100, 20_000):
        folder = write(tmp_path / str(row_group_size), pa.table({"x": values}), row_group_size=row_group_size)
        raw = opened(folder, id_columns=[], categorical=[])
        found.append(survey(raw, Recipe("impute:median")).medians)
    assert found[0] == found[1]
    # the rank of the median of s of n rows has standard deviation √s/2: five of them
    rank = (values < found[0]).mean()
    assert abs(rank - 0.5) < 5 * 0.5 / np.sqrt(500)
    assert found[0] != np.median(values)


def test_median_of_the_largest_numbers_is_among_them(tmp_path):
    raw = opened(write(tmp_path, pa.table({"id": range(3), "x": [1.5e308, None, 1.7e308]})), categorical=[])
    rows, _ = rows_of(prepare_columns(raw, Recipe("impute:median")).batches())
    assert rows[:, 0].tolist() == [1.5e308, 1.6e308, 1.7e308]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_later_rows_beyond_what_a_float_holds_are_infinite(tmp_path, kind):
    fitted = opened(
        write(tmp_path / "a", pa.table({"x": pa.array([1e-30, 2e-30], kind)})), id_columns=[], categorical=[]
    )
    preparation = prepare_columns(fitted, Recipe(standardize=True)).preparation
    later = pa.table({"id": [1], "x": pa.array([1e37 if kind == pa.float32() else 1e300], kind)})
    rows, _ = rows_of(PreparedSource(opened(write(tmp_path / "b", later), categorical=[]), preparation).batches())
    assert rows[-1].tolist() == [np.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_columns_are_centred_and_not_divided(tmp_path, dtype):
    values = np.full(5000, 1e7 + 1 / 3).astype(dtype)
    source = prepare_columns(
        opened(write(tmp_path, pa.table({"id": range(5000), "x": values, "y": np.arange(5000.0)})), categorical=[]),
        Recipe(standardize=True),
    )
    rows, _ = rows_of(source.batches())
    assert source.preparation.scale[0] == 1
    assert np.abs(rows[:, 0]).max() <= 5000 * EPS * 1e7
    assert rows[:, 1].std() == pytest.approx(1)


# ---------------------------------------------------------------- later rows


def test_later_rows_are_prepared_with_the_numbers_and_categories_of_the_fit(tmp_path):
    fitted = prepare_columns(
        opened(write(tmp_path / "a", table_of(300))), Recipe("impute:mean", standardize=True)
    ).preparation
    later = pa.table(
        {
            "month": pa.array([10.0, None]),  # nullable integers of pandas
            "extra": ["is not", "in use"],
            "carrier": pa.array(["AA", "UA"]).dictionary_encode(),
            "small": pa.array([None, 3], pa.int64()),
            "far": [1e6, 1e6 + 1],
            "wide": pa.array([10, 20], pa.float32()),
            "id": [8, 9],
        }
    )
    raw = opened(write(tmp_path / "b", later, parts=1), features=list(fitted.numeric))
    rows, ids = rows_of(PreparedSource(raw, fitted).batches())
    assert ids == [8, 9]
    mean, scale = np.array(fitted.mean), np.array(fitted.scale)
    values = np.array([[1e6, 10, fitted.fill[2]], [1e6 + 1, 20, 3]])
    assert rows[:, :3] == pytest.approx((values - mean) / scale, rel=1e-13)
    names = fitted.feature_names
    assert [name for name, is_set in zip(names, rows[0] == 1, strict=True) if is_set][-2:] == ["carrier=AA", "month=10"]
    assert [name for name, is_set in zip(names, rows[1] == 1, strict=True) if is_set][-2:] == [
        "carrier=UA",
        "month is null",
    ]


@pytest.mark.parametrize("unknown", ["error", "ignore"])
@pytest.mark.parametrize("nulls", ["error", "drop", "impute:median"])
def test_unknown_category_is_named_or_none_of_the_known_ones(tmp_path, nulls, unknown):
    recipe = Recipe(nulls, unknown=unknown)
    fitted = prepare_columns(opened(write(tmp_path / "a", table_of(50, holes=0))), recipe).preparation
    table = table_of(30, holes=0)
    carriers = table["carrier"].to_pylist()
    carriers[17] = "ZZ"
    folder = write(tmp_path / "b", table.set_column(4, "carrier", [carriers]))
    source = PreparedSource(opened(folder, features=list(fitted.numeric)), fitted)
    if unknown == "ignore":
        rows, _ = rows_of(source.batches())
        assert rows[17, 3:7].tolist() == [0, 0, 0, 0]
        assert rows[16, 3:7].sum() == 1
        return
    for read in (source.batches, lambda: (batch for span in source.spans(4) for batch in span.batches(3, "ids"))):
        with pytest.raises(
            RowError, match=r'row 7 of .*1\.parquet, column "carrier" is \'ZZ\', which is none of the 4'
        ):
            list(read())


def test_null_category_where_nulls_are_an_error_is_named_also_in_later_rows(tmp_path):
    fitted = prepare_columns(opened(write(tmp_path / "a", table_of(50, holes=0))), Recipe()).preparation
    table = table_of(30, holes=0)
    carriers = table["carrier"].to_pylist()
    carriers[12] = None
    folder = write(tmp_path / "b", table.set_column(4, "carrier", [carriers]))
    with pytest.raises(RowError, match=r'row 2 of .*1\.parquet, column "carrier" is null.*source\.nulls to drop'):
        prepare_columns(opened(folder), Recipe())
    with pytest.raises(RowError, match=r'row 2 of .*1\.parquet, column "carrier" is null.*source\.nulls to drop'):
        list(PreparedSource(opened(folder, features=list(fitted.numeric)), fitted).batches())


@pytest.mark.parametrize("nulls", ["error", *NULLS])
def test_infinity_is_named_by_its_row_in_its_file_whatever_becomes_of_nulls(tmp_path, nulls):
    table = pa.table({"id": range(30), "x": [None, *range(1, 14), np.inf, *range(15, 30)]})
    raw = opened(write(tmp_path, table.slice(1) if nulls == "error" else table, parts=1), categorical=[])
    with pytest.raises(
        NotFiniteError, match=rf'row {13 if nulls == "error" else 14} of .*0\.parquet, column "x" is inf'
    ):
        prepare_columns(raw, Recipe(nulls, standardize=True))


def test_rows_that_stay_are_counted_in_a_later_table_before_it_is_read(tmp_path):
    fitted = prepare_columns(opened(write(tmp_path / "a", table_of(200))), Recipe("drop")).preparation
    later = table_of(90, seed=1)
    source = PreparedSource(opened(write(tmp_path / "b", later), features=list(fitted.numeric)), fitted)
    expected, ids = reference(later, Recipe("drop"))
    rows, found = rows_of(source.batches())
    assert found == ids
    assert source.n_samples == len(ids)
    assert rows == pytest.approx(expected)


def test_file_with_fewer_rows_to_keep_than_when_it_was_counted_is_named(tmp_path):
    table = pa.table({"id": range(10), "x": np.arange(10.0)})
    source = prepare_columns(opened(write(tmp_path, table, parts=1), categorical=[]), Recipe("drop"))
    holes = pa.array(np.arange(10.0), mask=np.arange(10) == 4)
    write(tmp_path, table.set_column(1, "x", holes), parts=1)
    for span in source.spans(100):
        with pytest.raises(InvalidInputError, match=r"0\.parquet cannot be read as it was .*1 of 10 rows are missing"):
            list(span.batches(100))


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (pa.array([12345678901, 7]), pa.array([12345678901.0, None]), "12345678901"),
        (pa.array([0, 7]), pa.array([-0.0, None]), "0"),
        (pa.array([0.5, 7]), pa.array([0.5, None], pa.float32()), "0.5"),
        (pa.array([86_400_000, 0], pa.timestamp("ms")), pa.array([86_400_000_000, 0], pa.timestamp("us")), None),
        (pa.array([1, 2], pa.date32()), pa.array([86_400_000, 0], pa.date64()), "1970-01-02"),
        (pa.array(["a", "b"]), pa.array(["a", "a"]).dictionary_encode(), "a"),
        (pa.array(["a", "b"]), pa.array(["a", "a"], pa.large_string()), "a"),
    ],
)
def test_a_category_has_one_text_however_files_hold_it(tmp_path, first, second, text):
    for number, values in enumerate((first, second)):
        pq.write_table(pa.table({"id": [1, 2], "c": values}), tmp_path / f"{number}.parquet")
    source = prepare_columns(opened(tmp_path, features=[], categorical=["c"]), Recipe("impute:mean"))
    rows, _ = rows_of(source.batches())
    assert (rows[0] == rows[2]).all()
    if text is not None:
        assert f"c={text}" in source.feature_names


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("features", [None, ["x", "v"], ["dtype:floating"]])
def test_a_column_without_any_value_in_one_file_is_what_it_is_in_another(tmp_path, order, features):
    tables = {
        "a": pa.table({"id": [1], "x": pa.nulls(1), "v": [1.0]}),
        "b": pa.table({"id": [2], "x": [5.0], "v": [2.0]}),
    }
    for number, name in enumerate(order):
        pq.write_table(tables[name], tmp_path / f"{number}.parquet")
    source = prepare_columns(opened(tmp_path, features=features, categorical=[]), Recipe("impute:constant", fill=9))
    assert sorted(source.feature_names) == ["v", "x"]
    rows, ids = rows_of(source.batches())
    at = source.feature_names.index("x")
    assert dict(zip(ids, rows[:, at], strict=True)) == {1: 9, 2: 5}


def test_categories_that_are_long_numbers_are_sorted(tmp_path):
    table = pa.table({"id": [1, 2, 3], "c": ["9" * 5000, "10", "9"]})
    source = prepare_columns(opened(write(tmp_path, table), features=[], categorical=["c"]), Recipe())
    assert [name[:4] for name in source.feature_names] == ["c=9", "c=10", "c=99"]


def test_a_plan_takes_what_its_sample_has_no_value_of(tmp_path, monkeypatch):
    from scalable_kpca.source import prepared

    monkeypatch.setattr(prepared, "SAMPLE_ROWS", 2)
    table = pa.table({"id": range(100), "x": pa.array([None] * 99 + [1.0], pa.float64()), "v": np.arange(100.0)})
    raw = opened(write(tmp_path, table, parts=1, row_group_size=100), categorical=[])
    for nulls in ("drop", "impute:median", "impute:mean"):
        source = sample_columns(raw, Recipe(nulls, standardize=True))
        assert all(np.isfinite(b.rows).all() for span in source.spans(100) for b in span.batches(100))


def test_how_many_categories_would_be_too_many_changes_no_identity(tmp_path):
    raw = opened(write(tmp_path, table_of(60, holes=0)))
    sources = [prepare_columns(raw, Recipe(max_categories=limit)) for limit in (100, 200)]
    assert sources[0].fingerprint() == sources[1].fingerprint()
    assert sources[0].part_fingerprints() == sources[1].part_fingerprints()


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("columns", "options", "recipe", "message"),
    [
        (
            {"x": pa.array([None, None], pa.float64())},
            {},
            Recipe("impute:mean"),
            '"x" has no value in any of the 2 rows',
        ),
        ({"x": pa.array([None, None], pa.float64())}, {}, Recipe("drop"), "each of the 2 rows has a null"),
        ({"c": ["a", "b"]}, {"categorical": ["c"]}, Recipe(max_categories=1), '"c" has more than 1 different values'),
        ({"x": [1.0, 1e300]}, {}, Recipe(standardize=True), 'column "x" is beyond float64'),
        (
            {"x": [1e300, -1e300, None]},
            {},
            Recipe("impute:median", standardize=True),
            'variance of column "x" is beyond',
        ),
        ({"x": [1.7e308, 1.6e308]}, {}, Recipe("impute:median", standardize=True), 'variance of column "x" is beyond'),
        ({"x": [1.7e308, 1.6e308, None]}, {}, Recipe("impute:mean"), 'values of column "x" is beyond float64'),
        ({"c": ["a" * 10**5, "b"]}, {"categorical": ["c"]}, Recipe(max_categories=1), r"values, such as .{1,200}, and"),
        ({"x": [1.0, None]}, {}, Recipe(standardize=True), r'row 1 of .*0\.parquet, column "x" is NaN'),
    ],
)
def test_what_cannot_be_prepared_is_refused_by_name(tmp_path, columns, options, recipe, message):
    folder = write(tmp_path, pa.table({"id": range(len(next(iter(columns.values())))), **columns}), parts=1)
    with pytest.raises(InvalidInputError, match=message):
        prepare_columns(opened(folder, **{"categorical": []} | options), recipe)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"categorical": ["nothing"]}, 'source.categorical: "nothing" matches no free column'),
        ({"categorical": ["tags"]}, '"tags" of source.categorical is of type list'),
        ({"categorical": ["bytes"]}, '"bytes" of source.categorical is of type binary'),
        ({"categorical": ["carrier"], "features": ["carrier"]}, "named elsewhere already"),
        ({"features": ["x", "x"]}, "named elsewhere already"),
        ({"id_columns": [], "categorical": ["row"]}, r'source\.categorical names a column "row"'),
        ({"categorical": ["x"], "partition": ["x"], "features": ["y"]}, "in source.partition, which is"),
        ({"features": ["carrier"]}, "source.categorical"),
        ({"features": ["dtype:float64"]}, "dtype:double"),
        ({"features": ["when"]}, r'"when" is of type timestamp\[us\]; features are numbers'),
    ],
)
def test_columns_that_are_not_what_they_are_called_are_refused(tmp_path, options, message):
    when = pa.array([0], pa.timestamp("us"))
    table = pa.table({"id": [1], "x": [1.0], "y": [1.0], "carrier": ["a"], "tags": [[1]], "when": when})
    table = table.append_column("bytes", [[b"\xff"]]).append_column("row", [[1]])
    with pytest.raises(InvalidInputError, match=message):
        opened(write(tmp_path, table, parts=1), **{"categorical": []} | options)


def test_features_are_chosen_by_type(tmp_path):
    table = pa.table(
        {"id": [1], "a": [1], "b": [1.0], "c": pa.array([1.0], pa.float32()), "d": [True], "e": ["text"], "f": [2]}
    )
    folder = write(tmp_path, table, parts=1)

    def names(*features):
        return opened(folder, features=list(features), categorical=[], passthrough=["f"]).feature_names

    assert names("dtype:numeric") == ("a", "b", "c", "d")
    assert names("dtype:integer") == ("a",)
    assert names("dtype:floating", "dtype:boolean") == ("b", "c", "d")
    assert names("dtype:double", "a") == ("b", "a")


def test_a_table_of_categories_alone_has_features(tmp_path):
    table = pa.table({"id": range(4), "c": ["x10", "x9", "x10", "x2"]})
    raw = opened(write(tmp_path, table), features=[], categorical=["c"])
    source = prepare_columns(raw, Recipe())
    assert source.feature_names == ("c=x2", "c=x9", "c=x10")  # in natural order
    assert rows_of(source.batches())[0].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_a_category_may_travel_to_the_output_as_well(tmp_path):
    raw = opened(write(tmp_path, table_of(20, holes=0)), passthrough=["carrier"])
    source = prepare_columns(raw, Recipe())
    assert source.label_names == ("id", "carrier")
    for batch in source.batches():
        assert batch.labels.column_names == ["id", "carrier"]


# ---------------------------------------------------------------- directories that say something


def test_directories_say_what_all_rows_below_have_in_common(tmp_path):
    for day, hour in (("2024-01-02", "10"), ("2024-01-02", "9"), ("a%3Db", "__HIVE_DEFAULT_PARTITION__")):
        write(tmp_path / f"day={day}" / f"hour={hour}", pa.table({"id": [1, 2], "x": [1.0, 2.0]}), parts=1)
    source = opened(tmp_path, categorical=[], partition=["day", "hour"])
    assert source.label_names == ("id", "day", "hour")
    rows = [row for batch in source.batches() for row in batch.labels.to_pylist()]
    days = [(row["day"], row["hour"]) for row in rows]
    assert days == [("2024-01-02", "9")] * 2 + [("2024-01-02", "10")] * 2 + [("a=b", None)] * 2
    with pytest.raises(InvalidInputError, match=r'no directory above .* is called "week='):
        opened(tmp_path, categorical=[], partition=["week"])


def test_the_same_file_in_another_partition_is_another_one(tmp_path):
    for day in "12":
        write(tmp_path / f"day={day}", pa.table({"id": [1, 2], "x": [1.0, 2.0]}), parts=1)
    assert len(set(opened(tmp_path, categorical=[]).part_fingerprints())) == 1
    assert len(set(opened(tmp_path, categorical=[], partition=["day"]).part_fingerprints())) == 2


# ---------------------------------------------------------------- arrays, plans, files


@pytest.mark.parametrize("nulls", ["drop", "impute:mean"])
def test_bare_arrays_are_prepared_too(tmp_path, nulls):
    X = np.random.default_rng(0).standard_normal((40_000, 3))
    X[::7, 1] = np.nan
    np.save(tmp_path / "x.npy", X)
    source = prepare_columns(open_source("x.npy", tmp_path), Recipe(nulls, standardize=True))
    expected = X[~np.isnan(X).any(axis=1)] if nulls == "drop" else SimpleImputer().fit_transform(X)
    expected = StandardScaler().fit_transform(expected)
    numbers = np.flatnonzero(~np.isnan(X).any(axis=1)) if nulls == "drop" else np.arange(len(X))
    for batches in (source.batches(), (batch for span in source.spans(999) for batch in span.batches(500, "ids"))):
        found = list(batches)
        assert np.concatenate([batch.rows for batch in found]) == pytest.approx(expected, abs=1e-9)
        assert [row for batch in found for row in batch.labels["row"].to_pylist()] == numbers.tolist()


def test_a_plan_reads_some_rows_only(tmp_path, monkeypatch):
    from scalable_kpca.source import prepared

    monkeypatch.setattr(prepared, "SAMPLE_ROWS", 5)
    table = table_of(1000)
    raw = opened(write(tmp_path, table, row_group_size=100))
    read = []
    original = survey

    def watched(source, recipe, batches):
        return original(source, recipe, batches=(read.append(len(batch.rows)) or batch for batch in batches))

    monkeypatch.setattr(prepared, "survey", watched)
    source = sample_columns(raw, Recipe("drop", standardize=True))
    assert read == [5] * prepared.SAMPLE_SPANS
    assert source.n_samples == 1000  # at most
    rows = sum(len(batch.rows) for span in source.spans(100) for batch in span.batches(30))
    assert rows == table.to_pandas().notna().all(axis=1).sum()


@pytest.mark.parametrize("nulls", ["error", *NULLS])
def test_a_preparation_is_the_same_after_it_was_written(tmp_path, nulls):
    holes = 0 if nulls == "error" else 0.1
    source = prepare_columns(opened(write(tmp_path, table_of(60, holes=holes))), Recipe(nulls, standardize=True))
    fields = source.preparation.to_json()
    assert Preparation.from_json(fields) == source.preparation
    assert Preparation.from_json(fields).digest == source.preparation.digest
    wrong = [
        fields | {"numeric": ["a", 1, "c"]},
        fields | {"mean": [0.0]},
        fields | {"scale": [0.0, 1.0, 1.0]},
        fields | {"mean": [float("nan")] * 3},
        fields | {"recipe": {**fields["recipe"], "nulls": "guess"}},
        fields | {"recipe": {"unheard": 1}},
        fields | {"vocabularies": [{"column": 1, "values": []}]},
        fields | {"fill": [] if fields["fill"] else [0.0] * 3},
    ]
    for other in wrong:
        with pytest.raises((ValueError, TypeError, KeyError)):
            Preparation.from_json(other)


def test_identities_follow_contents_recipe_and_numbers(tmp_path):
    raw = opened(write(tmp_path, table_of(60, holes=0)))
    source = prepare_columns(raw, Recipe(standardize=True))
    again = prepare_columns(raw, Recipe(standardize=True))
    assert source.fingerprint() == again.fingerprint()
    assert source.fingerprint() != prepare_columns(raw, Recipe()).fingerprint() != raw.fingerprint()
    moved = dataclasses.replace(source.preparation, mean=tuple(value + 1 for value in source.preparation.mean))
    assert PreparedSource(raw, moved).part_fingerprints() != source.part_fingerprints()
    assert len(set(source.part_fingerprints())) == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.floats(-9, 9), st.sampled_from(["a", "b", None])), min_size=1, max_size=40),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_rows_that_stay_are_read_whatever_the_pieces(tmp_path, rows, group, span_rows, batch_rows):
    table = pa.table(
        {
            "id": range(len(rows)),
            "x": pa.array([x for x, _ in rows], pa.float64()),
            "c": pa.array([c for _, c in rows], pa.string()),
        }
    )
    expected = [number for number, (x, c) in enumerate(rows) if x is not None and c is not None]
    raw = opened(write(tmp_path, table, parts=2, row_group_size=group), features=["x"], categorical=["c"])
    if not expected:
        with pytest.raises(InvalidInputError, match="has a null"):
            prepare_columns(raw, Recipe("drop"))
        return
    source = prepare_columns(raw, Recipe("drop"))
    batches = [batch for span in source.spans(span_rows) for batch in span.batches(batch_rows, "all")]
    found, ids = rows_of(batches)
    assert ids == expected
    assert found[:, 0].tolist() == [rows[number][0] for number in expected]
