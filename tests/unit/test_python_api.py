"""What `import dsabench` offers, and what it costs."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dsabench
from dsabench.errors import InputError
from dsabench.results.journal import Journal
from factories import make_failure, make_record, make_spec
from studies import write_study

ROOT = Path(__file__).parents[2]


def test_the_import_loads_nothing_that_takes_time() -> None:
    heavy = ("pandas", "torch", "optuna", "numpy", "pydantic", "scipy", "pyarrow", "yaml", "aiohttp")
    code = f"import dsabench, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_no_other() -> None:
    assert {"Study", "StudyResult", "StudyObserver", "Results", "load_results"} <= set(dir(dsabench))
    assert all(getattr(dsabench, name) is not None for name in dir(dsabench))
    with pytest.raises(AttributeError, match="Studi"):
        dsabench.Studi  # noqa: B018


def test_results_are_frames(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(make_record(spec=make_spec(prefix_cache=True, chunked_prefill_size=64), value=50.0))
    journal.append(make_record(spec=make_spec(prefix_cache=False), outcome=make_failure()))
    results = dsabench.load_results(tmp_path)
    frame = results.to_frame()
    assert frame["output_throughput_tok_s"].tolist()[0] == 50.0
    assert frame["knob.chunked_prefill_size"].tolist()[0] == 64
    assert frame["knob.chunked_prefill_size"].isna().tolist() == [False, True]
    assert frame["outcome"].tolist() == ["measured", "failed"]
    assert str(frame["started_at"].dtype).startswith("datetime64")
    assert results.to_frame("metrics")["value"].tolist() == [50.0]
    assert results.to_frame("samples").empty
    with pytest.raises(InputError, match="no such table"):
        results.to_frame("boots")  # type: ignore[arg-type]


def test_a_study_is_planned_and_refused_in_one_line(tmp_path: Path) -> None:
    study = dsabench.Study.from_config(write_study(tmp_path), results=tmp_path / "results", max_trials=2)
    plan = study.plan()
    assert plan.left.boots == plan.plan.boots_total == 5, "one of the search, four of the confirmation"
    assert not (tmp_path / "results").exists(), "a plan starts nothing"
    with pytest.raises(InputError, match="no record of the study"):
        study.conclude()
    with pytest.raises(InputError, match="no such file"):
        dsabench.Study.from_config("nowhere")

    async def in_a_loop() -> None:
        study.run()

    with pytest.raises(InputError, match=r"await study\.run_async\(\)"):
        asyncio.run(in_a_loop())


@pytest.mark.slow
@pytest.mark.timeout(600)  # a sweep with a gate
def test_the_page_about_it_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for code in blocks:
        program = code.replace('results="results/local-python"', f"results={str(tmp_path / 'results')!r}")
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
