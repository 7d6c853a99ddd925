from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsabench.reference.engine.request import EOS, IncrementalDecoder, encode


@given(st.text())
def test_text_survives(text):
    decoder = IncrementalDecoder()
    for token in encode(text):
        decoder.feed(token)
        assert text.startswith(decoder.text), "what is out is never taken back"
    decoder.finish()
    assert decoder.text == text


@given(st.lists(st.integers(0, 258)))
def test_any_tokens_become_text_that_only_grows(tokens):
    decoder, before = IncrementalDecoder(), ""
    for token in tokens:
        decoder.feed(token)
        assert decoder.text.startswith(before)
        before = decoder.text
        before.encode()
    decoder.finish()
    assert decoder.text == bytes(token for token in tokens if token < 256).decode(errors="replace")


def test_incomplete_characters_wait():
    decoder = IncrementalDecoder()
    for token, text in zip(
        [*"é€".encode(), EOS, 0xE2, 0x41], ["", "é", "é", "é", "é€", "é€", "é€", "é€�A"], strict=True
    ):
        decoder.feed(token)
        assert decoder.text == text
