"""The flow of Prefect ends as skpca does, and tries again what may succeed later, against a server of its own."""

import pytest

from tests.pipelines.daily import FAR, N_ROWS, daily_job, exits_with, load, require

require("prefect")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flow(tmp_path_factory):
    with daily_job(tmp_path_factory.mktemp("prefect")) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(folder / "home"))
        module = load("prefect_flow")
        from prefect.testing.utilities import prefect_test_harness

        with prefect_test_harness(server_startup_timeout=90):
            yield module


def test_a_day_is_added_once(flow):
    state = flow.embed("2026-01-01", return_state=True)
    assert (state.is_completed(), state.message) == (True, None)
    assert (state.result()["status"], state.result()["rows"]) == ("done", N_ROWS)
    again = flow.embed("2026-01-01", return_state=True)
    assert (again.is_completed(), again.message) == (True, "nothing to do")
    assert again.result()["status"] == "unchanged"


def test_a_day_that_is_refused_fails_the_flow_with_its_words(flow):
    state = flow.embed(FAR, return_state=True)
    assert state.is_failed()
    assert "drift.fail is 10" in state.message


def test_what_may_succeed_later_is_tried_again_and_nothing_else(flow, tmp_path, monkeypatch):
    monkeypatch.setattr(flow, "COMMAND", exits_with([75, 69, 99, 74, 65], tmp_path))
    state = flow.embed("2026-01-02", return_state=True)
    assert state.is_failed()
    assert (tmp_path / "tries").read_text() == "5"


def test_nothing_is_reported(flow):
    from prefect.settings import get_current_settings

    assert not get_current_settings().server.analytics_enabled
    assert flow.RETRY_SECONDS[0] == 0.1
