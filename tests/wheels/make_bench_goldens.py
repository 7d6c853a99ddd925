"""Writes tests/golden/bench_serving/draws.json: what bench_serving 0.5.23 draws for some command lines.

    PYTHON tests/wheels/make_bench_goldens.py FOLDER_WITH_UNPACKED_WHEEL

PYTHON and the folder: see `bench_wheel.py`. With `--data` it first writes the files that the datasets read, which are
made up; never rewrite those without writing the draws again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench_wheel import import_serving, parse

GOLDEN = Path(__file__).parents[1] / "golden" / "bench_serving"
DATA = GOLDEN / "data"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_IDS = "--dataset-name random-ids --tokenize-prompt"
_GSP = (
    "--dataset-name generated-shared-prefix --gsp-num-groups 3 --gsp-prompts-per-group 4"
    " --gsp-system-prompt-len 20 --gsp-question-len 8 --gsp-output-len 6"
)
CASES = {
    "contract": f"{_IDS} --random-input-len 32 --random-output-len 64 --random-range-ratio 1.0 --num-prompts 200",
    "ids ranged": f"{_IDS} --random-input-len 100 --random-output-len 50 --num-prompts 50 --seed 7 --request-rate 3.5",
    "ids half": f"{_IDS} --random-input-len 64 --random-output-len 9 --random-range-ratio 0.5 --num-prompts 33 --seed 0",
    "ids as text": "--dataset-name random-ids --random-input-len 40 --random-output-len 5 --num-prompts 20",
    "random": "--dataset-name random --dataset-path conversations.json --random-input-len 90 --random-output-len 30"
    " --num-prompts 30 --seed 3 --request-rate 10",
    "random ids of text": "--dataset-name random --dataset-path conversations.json --tokenize-prompt"
    " --random-input-len 25 --random-output-len 8 --random-range-ratio 0.25 --num-prompts 40",
    "sharegpt": "--dataset-name sharegpt --dataset-path conversations.json --num-prompts 25",
    "sharegpt cut": "--dataset-name sharegpt --dataset-path conversations.json --num-prompts 100"
    " --sharegpt-context-len 120 --sharegpt-output-len 16 --seed 9",
    "sharegpt dressed": "--dataset-name sharegpt --dataset-path conversations.json --num-prompts 10 --seed 5"
    " --prompt-suffix now --apply-chat-template",
    "custom": "--dataset-name custom --dataset-path custom.jsonl --num-prompts 12 --seed 11 --request-rate 2",
    "openai": "--dataset-name openai --dataset-path openai.jsonl --num-prompts 4 --backend sglang-oai-chat",
    "prefix": _GSP,
    "prefix ids": f"{_GSP} --tokenize-prompt --gsp-range-ratio 0.3 --seed 2 --request-rate 5",
    "prefix zipf": f"{_GSP} --gsp-group-distribution zipf --gsp-zipf-alpha 1.2 --gsp-ordered --seed 4",
    "prefix fast": f"{_GSP} --gsp-fast-prepare",
    "prefix chats": f"{_GSP} --gsp-num-turns 3 --gsp-range-ratio 0.5 --seed 6 --request-rate 4 --backend sglang-oai-chat",
    "agentic": "--dataset-name agentic-trace --dataset-path agentic.json --num-prompts 4 --dataset-offset 3"
    " --agentic-max-turns 2 --request-rate 3 --backend sglang-oai-chat",
    "mooncake": "--dataset-name mooncake --dataset-path trace.jsonl --num-prompts 6 --mooncake-num-rounds 2"
    " --mooncake-slowdown-factor 0.5",
}
BYTEWISE = ("contract", "ids ranged", "ids as text", "random", "sharegpt", "custom", "prefix", "prefix ids", "mooncake")
BYTEWISE += ("prefix chats", "agentic")
VOCAB_ONLY = ("contract", "ids ranged", "ids half", "prefix ids")


class Bytewise:
    """The reference runtime's tokenizer, with the calls that bench_serving makes."""

    vocab_size, bos_token = 256, None

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def get_vocab(self) -> dict[str, int]:
        return {f"<{i}>": i for i in range(self.vocab_size)}

    def num_special_tokens_to_add(self) -> int:
        return 0

    def __hash__(self) -> int:
        return hash(self.vocab_size)


class VocabOnly(Bytewise):
    vocab_size = 1000


def main(folder: Path, *, with_data: bool) -> None:
    if with_data:
        write_data()
    serving = import_serving(folder)
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as home:
        Path.home = classmethod(lambda _: Path(home))  # type: ignore[method-assign] # it keeps pickles there
        tokenizers = {
            "tokenizer": (AutoTokenizer.from_pretrained(DATA / "tokenizer"), tuple(CASES)),
            "bytes": (Bytewise(), BYTEWISE),
            "1000": (VocabOnly(), VOCAB_ONLY),
        }
        draws = [
            {"case": case, "tokenizer": name, "flags": CASES[case], **draw(serving, CASES[case], tokenizer, home)}
            for name, (tokenizer, cases) in tokenizers.items()
            for case in cases
        ]
    lines = ",\n".join(json.dumps(one) for one in draws)
    (GOLDEN / "draws.json").write_text(f"[\n{lines}\n]\n")


def draw(serving: Any, flags: str, tokenizer: Any, home: str) -> dict[str, Any]:
    """One command line's requests and waits, through the code that runs them."""
    words = [str(DATA / word) if (DATA / word).is_file() else word for word in flags.split()]
    args = parse(serving, words)
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 - what the runs do
    for cached in Path(home).rglob("*.pkl"):
        cached.unlink()
    from sglang.benchmark.datasets import common

    common.get_available_tokens.cache_clear()
    rows, waits = asyncio.run(sent(serving, args, serving.get_dataset(args, tokenizer), tokenizer))
    canonical = [
        json.dumps([row.prompt, row.prompt_len, row.output_len, row.extra_request_body], sort_keys=True) for row in rows
    ]
    return {
        "count": len(rows),
        "input_tokens": sum(row.prompt_len for row in rows),
        "output_tokens": sum(row.output_len for row in rows),
        "first": canonical[0][:160],
        "sha256": hashlib.sha256("\n".join(canonical).encode()).hexdigest(),
        "waits_s": waits[:3] + waits[-1:],
        "waited_s": sum(waits),
    }


async def sent(serving: Any, args: Any, requests: Any, tokenizer: Any) -> tuple[list[Any], list[float]]:
    """Every row and every sleep of the generator that sends them; the clock follows the sleeps."""
    waits: list[float] = []
    now = [0.0]

    async def sleep(seconds: float) -> None:
        waits.append(float(seconds))
        now[0] += seconds

    from sglang.benchmark.datasets import mooncake

    real = asyncio.sleep, serving.time.perf_counter
    asyncio.sleep, serving.time.perf_counter = sleep, lambda: now[0]  # type: ignore[assignment]
    try:
        if args.dataset_name == "mooncake":
            stream = mooncake.get_mooncake_request_over_time(
                requests, tokenizer, args.mooncake_slowdown_factor, args.mooncake_num_rounds
            )
        else:
            stream = serving.get_request(requests, args.request_rate)
        rows = [row async for row in stream]
    finally:
        asyncio.sleep, serving.time.perf_counter = real  # type: ignore[assignment]
    return rows, waits


def write_agentic(text: Any) -> None:
    """Conversations of one to four turns; the first turn of each sets the scene, and one turn brings nothing new."""
    conversations = [
        [
            {
                "messages": [{"role": "system", "content": text(20)}] * (turn == 0)
                + [{"role": "user", "content": text(15)}],
                "prompt_tokens": 40 * (turn + 1) + place,
            }
            for turn in range(1 + place % 4)
        ]
        for place in range(7)
    ]
    conversations[3][2]["messages"] = []
    (DATA / "agentic.json").write_text(json.dumps({"metadata": {}, "conversations": conversations}))


def write_data() -> None:
    """Made-up conversations, requests, a trace and a small trained tokenizer."""
    words = random.Random(1)
    lexicon = ["".join(words.choices("abcdefghijklmnopqrstuvwxyz", k=words.randint(2, 9))) for _ in range(400)]
    lexicon += ["é", "über", "日本", "🙂", "naïve", "Assistant:", "\n", "42"]

    def text(most: int) -> str:
        return " ".join(words.choices(lexicon, k=words.randint(1, most)))

    DATA.mkdir(parents=True, exist_ok=True)
    talks = [
        {words.choice(["conversations", "conversation"]): [{"from": "human", "value": text(60)}, {"value": text(60)}]}
        for _ in range(80)
    ]
    talks[5] = {"conversations": [{"value": "alone"}]}
    talks[9] = {"conversations": [{"value": ""}, {"value": "an answer"}]}
    (DATA / "conversations.json").write_text(json.dumps(talks))
    turns = [[{"role": "user", "content": text(40)}, {"value": text(40)}] for _ in range(20)]
    lines = [json.dumps({"conversations": turn}) for turn in turns]
    lines[3:3] = ["not json", "", json.dumps({"conversations": turns[0][:1]})]
    (DATA / "custom.jsonl").write_text("\n".join(lines) + "\n")
    asked: list[dict[str, Any]] = [
        {
            "messages": [{"role": "system", "content": text(9)}, {"role": "user", "content": text(30)}],
            "max_tokens": 20 + i,
        }
        for i in range(6)
    ]
    asked[1] |= {"temperature": 0.5, "model": "other", "max_tokens": 7}
    asked[2]["tools"] = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    del asked[0]["max_tokens"]
    (DATA / "openai.jsonl").write_text("\n".join(map(json.dumps, asked)) + "\nbroken\n")
    write_agentic(text)
    trace = [
        {
            "timestamp": 3000 * i - (7000 if i == 4 else 0),
            "input_length": 900,
            "output_length": 5 + i,
            "hash_ids": [0, i],
        }
        for i in range(9)
    ]
    (DATA / "trace.jsonl").write_text("\n".join(map(json.dumps, trace)) + "\n")
    write_tokenizer([turn["value"] for talk in talks for turn in next(iter(talk.values()))])


def write_tokenizer(texts: list[str]) -> None:
    """Byte-level BPE of 400 tokens with a token that begins each text."""
    import tokenizers as hf

    tokenizer = hf.Tokenizer(hf.models.BPE())
    tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = hf.decoders.ByteLevel()
    trainer = hf.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<|user|>", "<|assistant|>"])
    tokenizer.post_processor = hf.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    folder = DATA / "tokenizer"
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 100000,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(next(word for word in sys.argv[1:] if not word.startswith("--"))), with_data="--data" in sys.argv)
