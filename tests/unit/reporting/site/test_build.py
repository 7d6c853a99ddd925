from __future__ import annotations

import base64
import hashlib
import html.parser
import re
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.evals.sample import EvalSample
from dsabench.model.environment import fingerprint
from dsabench.model.evals import EvalTask
from dsabench.model.record import EvalTrial, Failed, Measured, Metric, Record, Scored
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.sample import Frames, RequestSample
from dsabench.model.tuned_table import TunedTable
from dsabench.reporting.site.entry import make_entries
from dsabench.reporting.site.studies import make_studies
from dsabench.results.journal import Journal, read_journal
from dsabench.results.samples import write_samples
from factories import make_record, make_spec, make_workload

HOSTILE = (
    "</pre></td><script>alert(1)</script><img src=x onerror=alert(2)> \u202etxt.exe\u202c 🦜 {{ 7*7 }} $x_{1}$ "
    + "long" * 3000
)
ROOT = Path(__file__).parents[4]


class Tags(html.parser.HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.scripts: list[str | None] = []
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.images: list[str | None] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "script":
            self.scripts.append(values.get("src"))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        if tag == "img":
            self.images.append(values.get("src"))


def metrics(value: float) -> dict[str, Metric]:
    return {
        "total_throughput_tok_s": Metric(value=value, n=16),
        "ttft_ms.p50": Metric(value=1e5 / value, n=16),
        "tpot_ms.p50": Metric(value=1e4 / value, n=16),
    }


def hostile_study(folder: Path) -> None:
    """A measured default and challenger, a failure and an eval, hostile text wherever a server or a person could put it."""
    journal = Journal(folder)
    samples = "samples/one.parquet"
    write_samples(
        folder, samples, [RequestSample(i, 0.0, 0.1 * i, 2.0, 8, 2, Frames.of([(1.0, 1), (1.5, 1)])) for i in range(9)]
    )
    workload = make_workload(name=f"chat <b>{HOSTILE[:60]}")
    for number, value in enumerate((100.0, 101.0, 99.0)):
        outcome = Measured(metrics=metrics(value), samples=samples, warnings=(HOSTILE,))
        journal.append(
            make_record(workload=workload, occasion=number, minute=2 * number, outcome=outcome, phase="confirm")
        )
    for number, value in enumerate((120.0, 121.0, 119.0)):
        spec = make_spec(prefill_backend=HOSTILE[:80])
        outcome = Measured(metrics=metrics(value))
        record = make_record(
            spec=spec, workload=workload, occasion=number, minute=2 * number + 1, outcome=outcome, phase="confirm"
        )
        journal.append(record.model_copy(update={"resolved": {"served_model_name": HOSTILE, HOSTILE[:90]: 1}}))
    failure = Failed(stage="boot", fault="exited", message=HOSTILE, log_tail=HOSTILE)
    journal.append(make_record(spec=make_spec(page_size=1), workload=workload, outcome=failure, minute=20))
    journal.append(hostile_eval(folder))


def hostile_eval(folder: Path) -> Record:
    task = EvalTask(
        name="made-up", harness_id="made-up-1", scorer="last-integer", questions_sha256="0" * 64, num_questions=1,
        endpoint="chat", temperature=0.0, top_p=1.0, max_tokens=9, repeat=1,
    )  # fmt: skip
    trial = EvalTrial(runtime=RuntimeSpec(kind="external", model=HOSTILE[:200]), workload=task)
    sample = EvalSample(
        id="q#0", question="q", repeat=0, harness_id="made-up-1", prompt=HOSTILE, completion=HOSTILE, expected="1",
        answer=HOSTILE, score=0.0, standing="wrong",
    )  # fmt: skip
    (folder / "samples" / "answers.jsonl").write_text(sample.model_dump_json() + "\n")
    outcome = Scored(
        metrics={"score": Metric(value=0.0, n=1, ci_low=0.0, ci_high=0.9)}, samples="samples/answers.jsonl"
    )
    base = make_record(minute=30)
    return base.model_copy(update={"trial": trial, "id": trial.id, "outcome": outcome})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    hostile_study(folder)
    assert run(["report", "--results", str(folder), "--out", str(folder / "site")]) == 0
    return folder / "site"


def test_what_a_server_says_stays_text(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) == 1 + 1 + 8 + 1
    for page in pages:
        tags = Tags(page)
        assert tags.handlers == []
        assert tags.images == []
        assert all(script is not None and script.endswith("site.js") for script in tags.scripts), page
        assert "alert(1)</script>" not in page.read_text()
    shown = "".join(page.read_text() for page in pages)
    assert "&lt;script&gt;alert(1)" in shown
    assert "🦜" in shown
    assert "{{ 7*7 }}" in shown


def test_every_link_leads_to_a_page(site: Path) -> None:
    links = [(page, link) for page in site.rglob("*.html") for link in Tags(page).links]
    assert links
    for page, link in links:
        assert "://" not in link
        file = link.partition("#")[0]
        assert not file or (page.parent / file).is_file(), (page, link)


def test_nothing_is_asked_from_the_network(site: Path) -> None:
    for page in [*site.rglob("*.html"), site / "site.css", site / "site.js"]:
        text = page.read_text()
        assert not re.search(r"""(?:src|href|srcset|data|action)\s*=\s*["']?\s*(?:https?:)?//""", text), page
        assert not re.search(
            r"@import|url\(\s*[\"']?(?!#|data:)|fetch\(|XMLHttpRequest|WebSocket", text.replace(HOSTILE, "")
        ), page


def test_the_answer_stands_on_the_first_page(site: Path) -> None:
    index = (site / "index.html").read_text()
    assert "+20.0 %" in index
    assert ">better</span>" in index


def test_one_file_holds_overview_and_studies_and_needs_nothing_else(tmp_path: Path) -> None:
    hostile_study(tmp_path / "study")
    file = tmp_path / "sent" / "all.html"
    words = ["report", "--results", str(tmp_path / "study"), "--out", str(tmp_path / "site"), "--one-file", str(file)]
    assert run(words) == 0
    text, tags = file.read_text(), Tags(file)
    assert tags.scripts == [None]  # inline, and the policy lets no other run
    digest = base64.b64encode(hashlib.sha256((tmp_path / "site" / "site.js").read_bytes()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert tags.handlers == tags.images == []
    assert "alert(1)</script>" not in text
    assert not re.search(r'<(?:link|img|script)[^>]*(?:href|src)="(?!data:)', text)
    assert all(link.startswith("#") for link in tags.links)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in tags.links} - {""} <= set(ids)
    assert "+20.0 %" in text.partition('class="part"')[0]


def test_the_committed_file_of_the_h200_says_what_the_records_say(tmp_path: Path) -> None:
    """It was written by `dsabench report --results results/h200 --one-file`; a new figure asks for writing it again."""
    assert run(["report", "--results", str(ROOT / "results" / "h200"), "--out", str(tmp_path)]) == 0
    fresh, committed = (
        re.findall(r'<h3><a href="[^"]*">([^<]*)</a></h3>|class="effect [^>]*>([^<]*)<', page.read_text())
        for page in (tmp_path / "index.html", ROOT / "reports" / "h200" / "results.html")
    )
    assert len(fresh) > 40
    assert committed == fresh


def test_the_gain_of_a_search_is_against_the_searchs_own_default(tmp_path: Path) -> None:
    """Default and winner were confirmed by boots that were all faster: a mean of both would be neither's."""
    journal = Journal(tmp_path / "local")
    for minute, (spec, value) in enumerate(((make_spec(), 100.0), (make_spec(page_size=1), 110.0))):
        for number, (phase, extra) in enumerate((("search", 0.0), ("confirm", 50.0), ("confirm", 60.0))):
            outcome = Measured(metrics=metrics(value + (extra if spec == make_spec() else 0.0)))
            journal.append(
                make_record(spec=spec, occasion=number, minute=10 * number + minute, outcome=outcome, phase=phase)
            )
    (study,) = make_studies(make_entries([(journal.path, record) for record in journal.read().records]))
    best = next(one for one in study.settings if one is not study.default_setting)
    assert study.against_default(best) == pytest.approx(0.1)
    assert study.settings[0] is best


def test_committed_results_make_small_pages(tmp_path: Path) -> None:
    assert run(["report", "--results", str(ROOT / "results" / "h200" / "slice"), "--out", str(tmp_path)]) == 0
    sizes = {page: page.stat().st_size for page in tmp_path.rglob("*.html")}
    assert max(sizes.values()) < 2_000_000
    (study,) = (tmp_path / "studies").glob("*.html")
    assert "--dsa-prefill-backend flashmla_kv" in "".join(
        p.read_text() for p in (tmp_path / "records").glob("221e0f*.html")
    )
    for word in ("kv_pool_out_of_memory", "illegal_config", "random weights", "+76.8 %", "2.667"):
        assert word in study.read_text(), word


@pytest.mark.parametrize(("results", "weights"), [("reference-cpu", "real weights"), ("h200/slice", "random weights")])
def test_a_study_says_what_its_weights_are(results: str, weights: str, tmp_path: Path) -> None:
    assert run(["report", "--results", str(ROOT / "results" / results), "--out", str(tmp_path)]) == 0
    said = re.findall(r"random weights|real weights", (tmp_path / "index.html").read_text())
    assert set(said) == {weights}


def test_a_history_has_a_dot_for_each_boot_that_leads_to_its_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(16):
        outcome = Measured(metrics=metrics((100.0 if number < 8 else 80.0) + number % 3))
        journal.append(make_record(occasion=number, minute=number, outcome=outcome))
    assert run(["report", "--results", str(tmp_path), "--out", str(tmp_path / "site")]) == 0
    page = tmp_path / "site" / "history.html"
    assert page.read_text().count("<circle") == 16 * 3
    assert page.read_text().count('<svg class="strip"') == 3
    links = [link for link in Tags(page).links if link.startswith("records/")]
    assert len(set(links)) == 16
    assert all((page.parent / link).is_file() for link in links)


def test_folders_measured_apart_keep_both_boots(tmp_path: Path) -> None:
    for side in ("base", "candidate"):
        Journal(tmp_path / side).append(make_record(outcome=Measured(metrics=metrics(100.0))))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "journal.jsonl").write_bytes((tmp_path / "base" / "journal.jsonl").read_bytes())
    assert run(["report", "--results", str(tmp_path), "--out", str(tmp_path / "site")]) == 0
    assert len(list((tmp_path / "site" / "records").iterdir())) == 2


def test_a_tuned_table_has_a_page_with_rule_evidence_and_picture(tmp_path: Path) -> None:
    place = tmp_path / "tables"
    place.mkdir()
    (file,) = (ROOT / "results" / "h200" / "tables").glob("*H=64*.json")
    for suffix in (".json", ".svg"):
        (place / file.with_suffix(suffix).name).write_bytes(file.with_suffix(suffix).read_bytes())
    table = TunedTable.model_validate_json(file.read_bytes())
    hostile = table.evidence.model_copy(update={"conditions": (HOSTILE,), "command": HOSTILE})
    hostile_file = place / "hostile.json"
    hostile_file.write_text(table.model_copy(update={"evidence": hostile}).model_dump_json())
    Journal(tmp_path).append(make_record())
    assert run(["report", "--results", str(tmp_path), "--out", str(tmp_path / "site")]) == 0
    index = (tmp_path / "site" / "index.html").read_text()
    assert 'href="tables/1-flashmla_auto-64.html"' in index
    assert f"KV tokens &lt; {table.rule.kv_per_new_token:g} × new tokens" in index  # type: ignore[union-attr]
    page = tmp_path / "site" / "tables" / "1-flashmla_auto-64.html"
    tags = Tags(page)
    assert tags.images == ["1-flashmla_auto-64.svg"]
    assert (page.parent / tags.images[0]).read_bytes() == file.with_suffix(".svg").read_bytes()
    assert table.evidence.command is not None
    assert table.evidence.command in page.read_text()
    other = Tags(page.with_name("2-flashmla_auto-64.html"))
    assert other.images == []
    assert other.handlers == []
    assert len(other.scripts) == 1


def arms(folder: Path, *, in_turns: bool, patched: bool = False, begun: str = "before") -> None:
    for side, value in (("after", 110.0), ("before", 100.0)):
        journal = Journal(folder / side)
        for number in range(8):
            minute = 2 * number + (side != begun) if in_turns else number + 100 * (side != begun)
            outcome = Measured(metrics=metrics(value + number % 3))
            record = make_record(occasion=number, minute=minute, outcome=outcome)
            journal.append(in_patched_runtime(record) if patched and side == "after" else record)


def in_patched_runtime(record: Record) -> Record:
    known = record.environment
    packages = {**(known.runtime.packages or {}), "sglang-patch": "558f57203c2c"}
    runtime = known.runtime.model_copy(update={"wheel_hash": "patched", "packages": packages})
    print_ = fingerprint(known.hardware, runtime)
    return record.model_copy(
        update={"environment": known.model_copy(update={"runtime": runtime, "fingerprint": print_})}
    )


@pytest.mark.parametrize("begun", ["before", "after"])
def test_a_patched_runtime_is_held_against_the_untouched_one(tmp_path: Path, begun: str) -> None:
    arms(tmp_path, in_turns=True, patched=True, begun=begun)
    assert run(["report", "--results", str(tmp_path), "--out", str(tmp_path / "site")]) == 0
    pages = sorted((tmp_path / "site" / "studies").glob("*.html"))
    assert len({page.stem.rpartition("-")[2] for page in pages}) == 2, "two environments"
    assert sum("The same trials in after and in before" in page.read_text() for page in pages) == 1
    assert "+9.9 %" in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize("in_turns", [True, False])
def test_folders_with_the_same_trials_are_held_against_each_other(tmp_path: Path, in_turns: bool) -> None:
    arms(tmp_path, in_turns=in_turns)
    assert run(["report", "--results", str(tmp_path), "--out", str(tmp_path / "site")]) == 0
    pages = sorted((tmp_path / "site" / "studies").glob("*.html"))
    assert len(pages) == 2
    texts = [page.read_text() for page in pages]
    assert sum("The same trials in after and in before" in text for text in texts) == 1
    index = (tmp_path / "site" / "index.html").read_text()
    assert "+9.9 %" in index
    assert (">better</span>" in index) == in_turns
    assert (">inconclusive</span>" in index) != in_turns
    history = (tmp_path / "site" / "history.html").read_text()
    assert history.count("<section>") == (2 if in_turns else 1)


def test_each_comparison_of_folders_shows_the_figures_of_its_own_setting(tmp_path: Path) -> None:
    values = {"before": (1000.0, 3000.0), "after": (2000.0, 4000.0)}
    specs = (make_spec(), make_spec(chunked_prefill_size=512))
    for minute, (side, of_side) in enumerate(values.items()):
        for spec, value in zip(specs, of_side, strict=True):
            record = make_record(spec=spec, minute=minute, outcome=Measured(metrics=metrics(value)))
            Journal(tmp_path / side).append(record)
    assert run(["report", "--results", str(tmp_path), "--out", str(tmp_path / "site")]) == 0
    pages = [page.read_text() for page in (tmp_path / "site" / "studies").glob("*.html")]
    [page] = [text for text in pages if "The same trials in after and in before" in text]
    rows = page.partition("The same trials in")[2].partition("</table>")[0].split("<tr>")[2:]
    shown = [(row.partition("<code>")[2].partition("<")[0], re.findall(r">([\d,]+)</a>", row)) for row in rows]
    assert sorted(shown) == [("chunked_prefill_size=512", ["3,000", "4,000"]), ("default", ["1,000", "2,000"])]
    # Each folder has a setting that leads its search, but what was compared is the folders.
    index = (tmp_path / "site" / "index.html").read_text()
    assert re.search(
        r'<code>after</code> *</span> <span class="quiet">against</span> <a href="[^"]*">before</a>', index
    )


def test_the_best_of_hisparse_is_held_against_each_baseline_and_its_default_is_the_configs() -> None:
    """The study pins a knob for all settings, so that its default is not quite the config's; lanes end out of order."""
    journal = ROOT / "results" / "h200" / "hisparse" / "journal.jsonl"
    records = [(journal, record) for record in read_journal(journal).records]
    (study,) = make_studies(make_entries(records))
    assert records[0][1].trial.runtime.id != study.default.id
    assert (study.default.knobs["hisparse"], study.default.knobs["kv_cache_dtype"]) == (False, "fp8_e4m3")
    assert study.best is not None
    assert study.best.spec.knobs["hisparse"] is True
    rivals = {
        (one.base.spec.knobs["hisparse"], one.base.spec.knobs["kv_cache_dtype"]): one.verdicts[0]
        for one in study.rivals
    }
    assert set(rivals) == {(False, "bfloat16"), (True, "fp8_e4m3")}
    assert all(verdict.metric == "output_throughput_tok_s" for verdict in rivals.values())
    assert study.verdicts[0].effect != rivals[False, "bfloat16"].effect


def test_one_boot_a_side_makes_no_headline_and_what_no_gate_was_asked_of_says_so(tmp_path: Path) -> None:
    results = ROOT / "results" / "h200"
    assert (
        run(
            [
                "report",
                "--results",
                str(results / "x4"),
                "--results",
                str(results / "threshold"),
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    cards = dict(
        re.findall(
            r'<h3><a href="[^"]*">([^<]*)</a></h3>(.*?)</article>', (tmp_path / "index.html").read_text(), re.DOTALL
        )
    )
    assert list(cards) == ["h200-threshold", "h200-x4-slice"]
    assert 'class="forest' not in cards["h200-x4-slice"]
    assert "not confirmed" in cards["h200-x4-slice"]
    assert ">+63.9 %<" in cards["h200-threshold"]
    assert "no accuracy gate" in cards["h200-threshold"]
