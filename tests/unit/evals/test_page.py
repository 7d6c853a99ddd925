"""The page of samples: what it shows, and that nothing in a completion becomes markup."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser

from dsabench.evals.sample import EvalSample
from dsabench.evals.summarise import tally
from dsabench.model.evals import EvalTask
from dsabench.reporting.eval_page import CHARS_MAX, SAMPLES_MAX, Asked, write_page

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x' &amp; <style>*{display:none}</style>"
TASK = EvalTask(
    name="gsm8k", harness_id="h", scorer="last-integer", questions_sha256="0" * 64, num_questions=3, endpoint="chat",
    temperature=0.0, top_p=1.0, max_tokens=8, repeat=1,
)  # fmt: skip


ASKED = Asked(EVIL, EVIL, datetime(2026, 1, 2, 3, 4, tzinfo=UTC))


def sample(number: int, **more) -> EvalSample:
    given = {
        "id": f"q{number}#0", "question": f"q{number}", "repeat": 0, "harness_id": "h", "prompt": EVIL, "completion": EVIL,
        "reasoning": EVIL, "expected": EVIL, "answer": EVIL, "score": 0.0, "standing": "wrong", "finished_at_s": 0.0,
    }  # fmt: skip
    return EvalSample(**{**given, **more})


class Reader(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data) -> None:
        self.text += data


def read(path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text())
    return reader


def test_completions_stay_text(tmp_path) -> None:
    samples = [sample(0), sample(1, standing="failed", error=EVIL, completion=None), sample(2, id=EVIL, group=EVIL)]
    page = read(write_page(tmp_path / "page.html", TASK, tally(samples), ASKED))
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "img", "iframe"} & set(tags)
    assert tags.count("style") == 1
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count(EVIL) >= 8
    assert "2026-01-02 03:04 UTC" in page.text
    policy = next(
        attributes["content"] for tag, attributes in page.tags if tag == "meta" and "http-equiv" in attributes
    )
    assert "default-src 'none'" in policy


def test_every_kind_can_be_filtered_and_wrong_ones_come_first(tmp_path) -> None:
    kinds = ["correct", "wrong", "no answer", "failed"]
    samples = [sample(i, standing=kind, truncated=i == 2, answer="7") for i, kind in enumerate(kinds)]
    page = read(write_page(tmp_path / "page.html", TASK, tally(samples), ASKED))
    classes = [attributes["class"] for tag, attributes in page.tags if tag == "details"]
    assert classes == ["failed", "no-answer truncated", "wrong", "correct"]
    boxes = {attributes["id"] for tag, attributes in page.tags if tag == "input"}
    assert boxes == {"show-correct", "show-wrong", "show-no-answer", "show-failed", "only-truncated"}


def test_long_texts_and_many_samples_are_cut_and_said_so(tmp_path) -> None:
    samples = [sample(i, completion="x", prompt="p", reasoning=None) for i in range(SAMPLES_MAX + 5)]
    samples[0] = sample(0, completion="a" * 3 * CHARS_MAX)
    path = write_page(tmp_path / "page.html", TASK, tally(samples), ASKED)
    text = read(path).text
    assert "5 further samples" in text
    assert f"{2 * CHARS_MAX} characters left out" in text
