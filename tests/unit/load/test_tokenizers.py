from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.load.draw.tokenizers import ByteTokenizer, NoTokenizer, load_tokenizer

FOLDER = Path(__file__).parents[2] / "golden" / "bench_serving" / "data" / "tokenizer"


def test_bytes_are_tokens() -> None:
    tokenizer = load_tokenizer("bytes")
    assert tokenizer == ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode("é🙂a")) == "é🙂a"
    assert tokenizer.count("é") == 2
    assert tokenizer.decode([255]) == "\ufffd"


def test_ids_only_has_no_text() -> None:
    assert NoTokenizer(4).ids() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="needs a tokenizer"):
        NoTokenizer(4).encode("a")
    with pytest.raises(InputError, match="--tokenize-prompt"):
        NoTokenizer(4).decode([1])


def test_a_folder_with_tokenizer_json() -> None:
    pytest.importorskip("tokenizers")
    tokenizer = load_tokenizer(str(FOLDER))
    assert tokenizer.encode("abc é")[0] == 0  # <s>
    assert len(tokenizer.encode("abc é")) == tokenizer.count("abc é") + tokenizer.special_tokens_added
    assert tokenizer.decode(tokenizer.encode("abc é")) == "<s>abc é"
    assert len(tokenizer.ids()) == tokenizer.vocab_size + 2
    chat = tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert chat == "<s><|user|>hi\n<|assistant|>"


@pytest.mark.parametrize("text", ["{", "{}", ""])
def test_a_broken_file_is_one_line(tmp_path: Path, text: str) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError, match=r"tokenizer.json: ") as caught:
        load_tokenizer(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_template_that_runs_code_or_refuses_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    for template in ("{{ messages.__class__.__mro__ }}", "{{ raise_exception('no system role') }}", "{% for %}"):
        (tmp_path / "chat_template.jinja").write_text(template)
        tokenizer = load_tokenizer(str(tmp_path))
        with pytest.raises(InputError, match="chat template: ") as caught:
            tokenizer.render_chat([{"role": "user", "content": "hi"}])
        assert "\n" not in str(caught.value)


def test_a_name_that_is_no_path_is_one_line() -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        load_tokenizer("deepseek-ai/DeepSeek-V3.2")


def test_a_model_of_the_hubs_local_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    snapshot = tmp_path / "hub" / "models--deepseek-ai--DeepSeek-V3.2" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert load_tokenizer("deepseek-ai/DeepSeek-V3.2").vocab_size > 256
    with pytest.raises(InputError, match="nor in the hub's local cache"):
        load_tokenizer("deepseek-ai/DeepSeek-V3")
