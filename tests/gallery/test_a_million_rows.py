"""The page docs/gallery/a_million_rows.py: what was recorded is what the package promises."""

import numpy as np


def test_a_million_rows_were_fitted_exactly_in_less_than_three_gigabytes_and_no_finished_pass_was_made_again(page):
    shown = page("a_million_rows")
    job, run = shown["job"], shown["run"]
    assert shown["row"]["n"] == 1_000_000
    assert job["killed_after"] > 0
    assert run["resumed_passes"] == 1
    assert run["n_passes"] <= 5
    assert job["peak_memory"] < 3e9
    assert job["complete"]
    assert job["wrong_ids"] == 0
    eigenvalues = np.array(job["eigenvalues"])
    assert (np.diff(eigenvalues) < 0).all()
    # the default of float32 tiles
    assert max(job["residuals"]) <= 1e-6 * eigenvalues[0]
    # the trace of H K H is at most n for a kernel that is 1 on the diagonal
    assert eigenvalues.sum() / job["explained_variance"] <= 1_000_000
    assert f"{shown['row']['n']} rows in {run['n_passes']} passes, 1 of them taken over" in shown.printed
