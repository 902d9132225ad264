"""Every configuration that is shipped runs, and its result is what its first lines say."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from scalable_kpca.model import load_model
from scalable_kpca.workflow.loading import load_config
from tests.support import skip

ROOT = Path(__file__).parents[2]
PIPELINES = ROOT / "pipelines"
RUN_ELSEWHERE = {"daily": "tests/test_cli.py", "digits": "tests/test_cli.py", "flights": "tests/memory/test_flights.py"}
RUN_HERE = {"patches", "expression"}


def names():
    return sorted(path.stem for path in PIPELINES.glob("*.yaml"))


def test_each_shipped_configuration_is_run_by_a_test():
    assert set(names()) == set(RUN_ELSEWHERE) | RUN_HERE
    for name, test in RUN_ELSEWHERE.items():
        assert f"{name}.yaml" in (ROOT / test).read_text()


@pytest.mark.parametrize("name", names())
def test_a_shipped_configuration_is_valid_and_names_its_schema(name):
    path = PIPELINES / f"{name}.yaml"
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
    config = load_config(path, environment={})
    assert config.output.path == f"out/{name}"
    assert yaml.safe_load(path.read_text()).keys() <= type(config).model_fields.keys()


def run(name, folder):
    """Run directory of a configuration on its data set."""
    data = folder / "data"
    subprocess.run([sys.executable, str(PIPELINES / "datasets.py"), name, str(data)], check=True, capture_output=True)
    asked = ["run", str(PIPELINES / f"{name}.yaml"), "--json", "--set", f"source.uri={data}"]
    command = [sys.executable, "-m", "scalable_kpca.cli", *asked, "--set", f"output.path={folder / 'out'}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return Path(json.loads(finished.stdout.splitlines()[-1])["run"])


def scores_of(made):
    table = pa.concat_tables([pq.read_table(part) for part in sorted((made / "embedding").iterdir())])
    names = [name for name in table.column_names if name.startswith("pc_")]
    return table, np.column_stack([table[name] for name in names])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_expression_of_many_genes_tells_tissues_apart(tmp_path):
    made = run("expression", tmp_path)
    model = load_model(made / "model")
    assert (model.n_samples, model.n_features) == (240, 12_000)
    assert model.certificate.complete
    table, scores = scores_of(made)
    # PCA of the standardized genes has the spectrum of the Gram matrix
    values = pq.read_table(tmp_path / "data").drop_columns(["sample", "tissue"]).to_pandas().to_numpy(np.float64)
    deviation = values.std(axis=0)
    values = (values - values.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    spectrum = np.linalg.eigvalsh(values @ values.T)[::-1]
    np.testing.assert_allclose(model.eigenvalues, spectrum[: model.n_components], rtol=1e-6)
    share = spectrum[: model.n_components].sum() / spectrum.sum()
    assert share >= 0.5 > share - spectrum[model.n_components - 1] / spectrum.sum()
    # each tissue lies around a mean of its own: the nearest one is that of a sample
    tissues = np.array(table["tissue"].to_pylist())
    means = {name: scores[tissues == name].mean(axis=0) for name in sorted(set(tissues))}
    nearest = np.argmin([np.linalg.norm(scores - mean, axis=1) for mean in means.values()], axis=0)
    assert (np.array(list(means))[nearest] == tissues).mean() > 0.95  # a quarter by chance


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_patches_of_photographs_have_components_and_novel_ones_are_edges(tmp_path):
    if importlib.util.find_spec("PIL") is None:
        skip("pillow is missing")
    made = run("patches", tmp_path)
    model = load_model(made / "model")
    table, scores = scores_of(made)
    assert scores.shape == (2 * 210 * 317, 16)
    assert model.certificate.explained_variance_ratio.sum() > 0.5
    pixels = pa.concat_tables([pq.read_table(tmp_path / "data" / f"{name}.parquet") for name in ("china", "flower")])
    ids = ["photo", "top", "left"]
    assert table.select(ids).equals(pixels.select(ids))
    # the first component is how bright a patch is, and plain patches are nowhere novel
    values = np.column_stack([pixels[f"px{number:02d}"] for number in range(64)])
    assert abs(np.corrcoef(scores[:, 0], values.mean(axis=1))[0, 1]) > 0.9
    contrast, novelty = values.std(axis=1), table["novelty"].to_numpy()
    assert contrast[novelty > np.quantile(novelty, 0.99)].mean() > 3 * contrast[novelty < np.median(novelty)].mean()
