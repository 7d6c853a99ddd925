"""`dsabench bench` against a real server on a real socket."""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsabench.cli.bench_flags import parse_flags
from dsabench.cli.main import run
from dsabench.errors import InputError
from dsabench.results.samples import read_samples
from paced_server import Pace, PacedServer
from unit.cli.bench_server import BenchServerThread

HERE = Path(__file__)
DATA = HERE.parents[2] / "golden" / "bench_serving" / "data"
KEYS = json.loads((DATA.parent / "keys.json").read_text())
CONTRACT = (
    "bench --backend sglang --base-url {url} --model m --dataset-name random-ids --tokenize-prompt --vocab-size 1000"
    " --random-input-len 32 --random-output-len 64 --random-range-ratio 1.0 --num-prompts {n} --max-concurrency 4"
    " --output-file {file}"
)
SHORT = "bench --dataset-name random-ids --tokenize-prompt --vocab-size 100 --random-input-len 8 --random-output-len 9"
CHAT = f"bench --backend sglang-oai-chat --dataset-name custom --dataset-path {DATA / 'custom.jsonl'} --num-prompts 5"
TOO_FEW = "6 requests are too few; it takes 10 inside the window"
HEAVY = {"pydantic", "typer", "rich", "optuna", "torch", "matplotlib", "scipy", "pandas", "pyarrow", "yaml"}


def bench(server: BenchServerThread, words: str, file: Path) -> dict[str, Any]:
    assert run([*words.split(), "--base-url", server.url, "--output-file", str(file)]) == 0
    record: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
    return record


def test_the_contract_line(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with BenchServerThread() as server:
        words = CONTRACT.format(url=server.url, n=12, file=file).split()
        code = (
            "import sys\nfrom dsabench.cli.main import run\n"
            f"code = run({words!r})\nprint('LOADED', sorted({HEAVY!r} & set(sys.modules)))\nsys.exit(code)"
        )
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    assert "LOADED []" in done.stdout
    first, second = file.read_text().splitlines()
    assert '"request_rate": Infinity' in first
    record = json.loads(second)
    assert list(record)[: len(KEYS["record"])] == KEYS["record"]
    assert (record["completed"], record["total_input_tokens"], record["total_output_tokens"]) == (12, 384, 768)
    assert record["accept_length"] == 2.5
    assert record["client"]["frames"] == 12 * 48
    assert 0 < record["client"]["startup_cpu_s"] < record["client"]["cpu_s"] < 60


LATER = (
    "dsabench.load.read",
    "dsabench.load.judge",
    "dsabench.load.bench_serving.metrics",
    "dsabench.cli.bench_report",
)
"""What is loaded after the first request: before it everything counts in the client's start."""


def test_what_reads_and_reports_is_loaded_after_the_first_request(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom dsabench.load.client.dispatcher import Dispatcher\nfrom dsabench.cli.main import run\n"
        "start, seen = Dispatcher.start, []\n"
        "def spy(self, at):\n    seen.append(sorted(sys.modules))\n    start(self, at)\n"
        "Dispatcher.start = spy\ncode = run(sys.argv[1:])\nprint('SEEN', *seen[0])\nsys.exit(code)"
    )
    with BenchServerThread() as server:
        words = [*SHORT.split(), "--num-prompts", "2", "--base-url", server.url, "--output-file", str(tmp_path / "o")]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.partition("SEEN ")[2].split()
    assert [name for name in loaded if name.startswith(LATER)] == []
    assert {"aiohttp", "http.client", "email", "tempfile", *HEAVY} & set(loaded) == set()
    assert sum(name.startswith("dsabench") for name in loaded) < 45


def test_the_line_says_where_the_time_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BenchServerThread() as server:
        client = bench(server, f"{SHORT} --num-prompts 12", tmp_path / "o")["client"]
    phases = {"start", "wait", "draw", "warm_up", "connect", "load", "read", "report"}
    assert client["phases_cpu_s"].keys() == client["phases_s"].keys() == phases
    assert client["startup_cpu_s"] == client["phases_cpu_s"]["start"]
    assert sum(client["phases_cpu_s"].values()) == pytest.approx(client["cpu_s"], abs=0.02)
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Time (s): start ")]
    assert "CPU of the client" in line


@pytest.mark.timing
def test_on_a_quiet_machine_the_client_is_not_saturated_and_cheap(tmp_path: Path) -> None:
    with BenchServerThread() as server:
        client = bench(server, f"{SHORT} --num-prompts 12", tmp_path / "o")["client"]
    assert client["saturated"] is False
    assert client["cpu_s"] - client["startup_cpu_s"] < 5


def test_the_block_has_bench_servings_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BenchServerThread() as server:
        bench(server, f"{SHORT} --num-prompts 6 --goodput ttft:500 e2el:1000 --cache-report", tmp_path / "o")
    out = capsys.readouterr().out
    block, steady = out.split("= Counted From Schedule =")[0].rsplit("\n", 1)[0] + "\n", out.splitlines()[-5:-2]
    assert re.sub(r"\d+(\.\d+)? *(?=%?\n)", "N", block).splitlines() == KEYS["block"]
    assert steady == ["================== Steady State ==================", f"none: {TOO_FEW}", "=" * 50]
    assert "Backend:                                 sglang    \n" in out
    assert "Cache hit rate:                          " in out


def test_the_steady_state_follows_the_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BenchServerThread() as server:
        words = f"{SHORT} --num-prompts 40 --max-concurrency 2 --random-range-ratio 1"
        record = bench(server, words, tmp_path / "o")
    out = capsys.readouterr().out
    steady = record["steady_state"]
    assert 10 <= steady["completed"] < 40
    assert 1.8 <= steady["concurrency"] <= 2.0
    assert steady["duration_s"] < record["duration"]
    assert steady["output_throughput"] == pytest.approx(9 * steady["request_throughput"], rel=0.1)
    assert steady["p99_ttft_ms"] is None  # from 40 requests there is none to tell
    _, after = out.split("= Steady State =")
    assert "Concurrency:" in after
    assert "Median TTFT (ms):" in after
    assert "P99 TTFT" not in after


def test_waiting_for_a_slot_counts_from_the_schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BenchServerThread() as server:
        words = f"{SHORT} --num-prompts 12 --max-concurrency 1 --random-range-ratio 1 --request-rate 1e6"
        record = bench(server, f"{words} --samples {tmp_path / 's.parquet'} --goodput ttft:1000", tmp_path / "o")
    told = record["from_schedule"]
    assert told["mean_ttft_ms"] == pytest.approx(record["mean_ttft_ms"] + told["mean_queue_wait_ms"])
    assert told["mean_queue_wait_ms"] > 2 * record["mean_e2e_latency_ms"]  # 12 at once, one slot: 5.5 before it
    assert told["p99_queue_wait_ms"] is None
    low, high = record["slo_attainment_interval"]
    assert low < record["slo_attainment"] <= high
    after = capsys.readouterr().out.split("= Counted From Schedule =")[1]
    assert "Median Queue Wait (ms):" in after
    samples = read_samples(tmp_path / "s.parquet")
    assert [sample.output_tokens for sample in samples] == [9] * 12
    assert run([*SHORT.split(), "--samples", str(tmp_path / "s.csv")]) == 2


def test_requests_are_bench_servings(tmp_path: Path) -> None:
    with BenchServerThread() as server:
        words = f"{SHORT} --random-output-len 40 --num-prompts 5 --warmup-requests 2 --flush-cache --profile"
        words += " --max-concurrency 1"
        bench(server, words + ' --random-range-ratio 1 --seed 3 --extra-request-body {"x":1}', tmp_path / "o")
        warm_up = server.bodies[0]["input_ids"]
        first = next(body for body in server.bodies[2:] if body["input_ids"] == warm_up)  # they arrive in any order
        assert first == {
            "input_ids": first["input_ids"],
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 40, "ignore_eos": True},
            "stream": True,
            "lora_path": None,
            "return_logprob": False,
            "return_routed_experts": False,
            "logprob_start_len": -1,
            "x": 1,
        }
        assert [body["sampling_params"]["max_new_tokens"] for body in server.bodies[:2]] == [32, 32]
        assert [body["input_ids"] for body in server.bodies[:2]] == [first["input_ids"]] * 2
        order = [path for path in server.paths if path not in {"/generate", "/v1/models"}]
        assert order == ["/server_info", "/flush_cache", "/start_profile", "/stop_profile", "/server_info"]
        assert server.paths.index("/flush_cache") == 5  # after /v1/models, twice, /server_info and the warm-up


@pytest.mark.parametrize("model", ["--model the-folder", ""])
def test_requests_carry_the_served_name(tmp_path: Path, model: str) -> None:
    with BenchServerThread() as server:
        bench(server, f"{CHAT} {model} --served-model-name the-name --draw exact --tokenizer bytes", tmp_path / "o")
    assert {body["model"] for body in server.bodies} == {"the-name"}


def test_details_of_a_native_run(tmp_path: Path) -> None:
    with BenchServerThread() as server:
        record = bench(server, f"{SHORT} --num-prompts 4 --random-range-ratio 1 --output-details", tmp_path / "o")
    assert set(KEYS["details"]) - record.keys() == {"cached_tokens", "cached_tokens_details"}
    assert record["output_lens"] == [9] * 4
    assert [len(itls) for itls in record["itls"]] == [8] * 4
    assert record["itls"][0][0] == record["itls"][0][1]  # a frame of two tokens
    assert record["generated_texts"] == ["ab " * 9] * 4
    assert record["errors"] == [""] * 4


def test_chat_counts_what_is_told_and_what_was_cached(tmp_path: Path) -> None:
    with BenchServerThread() as server:
        words = f"{CHAT} --draw exact --tokenizer bytes --sharegpt-output-len 6 --cache-report --output-details"
        record = bench(server, words, tmp_path / "o")
        body = server.bodies[-1]
    assert record["input_lens"] == [7] * 5
    assert record["output_lens"] == [6] * 5
    assert record["total_output_tokens_retokenized"] == 5 * 18
    assert record["cache_report"]["total_cached_tokens"] == 20
    assert record["cached_tokens_details"] == [{"device": 3, "host": 1}] * 5
    assert len(record["itls"][0]) == 5
    means = [record["mean_itl_ms"], sum(map(sum, record["itls"])) / 25 * 1000]
    assert means[0] == pytest.approx(means[1] / 3)  # accept length 2.5: gaps are split by the 3 tokens of their text
    assert body.keys() == {
        *("model", "messages", "max_completion_tokens", "stream", "temperature", "ignore_eos"),
        "return_cached_tokens_details",
    }
    assert body["model"] == "the-model"


def test_failures_are_counted_and_all_of_them_end_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.jsonl"
    with BenchServerThread(refused=frozenset({2, 3})) as server:  # 0 is the warm-up
        record = bench(server, f"{SHORT} --num-prompts 20 --output-details", file)
    assert (record["completed"], record["failed"]) == (18, 2)
    assert sum(error.startswith("http 503: ") for error in record["errors"]) == 2
    out, err = capsys.readouterr()
    assert "2 of 20 requests failed, most with http 503" in err
    assert record["warnings"][0].startswith("2 of 20 requests failed, most with http 503")
    assert f"{'Failed requests:':<40} 2 " in out
    with BenchServerThread(everything_refused=True) as server:
        words = [*SHORT.split(), "--num-prompts", "3", "--base-url", server.url, "--output-file", str(file)]
        assert run(words) == 3
    assert "all 1 warm-up requests failed" in capsys.readouterr().err
    assert len(file.read_text().splitlines()) == 1


def test_a_trace_names_its_rate_and_what_was_left_out(tmp_path: Path) -> None:
    trace = tmp_path / "b.csv"
    rows = ["Timestamp,Request tokens,Response tokens", *(f"{at / 100},{20 + at},{at % 4}" for at in range(12))]
    trace.write_text("\n".join(rows))
    words = f"bench --dataset-name burstgpt --dataset-path {trace} --tokenize-prompt --vocab-size 100 --num-prompts 50"
    with BenchServerThread() as server:
        record = bench(server, words, tmp_path / "o")
    assert (record["completed"], record["request_rate"]) == (9, "trace")
    mooncake = tmp_path / "m.jsonl"
    mooncake.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}\n' * 2)
    words = f"bench --dataset-name mooncake --dataset-path {mooncake} --tokenizer bytes --num-prompts 2"
    with BenchServerThread() as server:
        rates = [
            bench(server, f"{words}{more}", tmp_path / "p")["request_rate"]
            for more in ("", " --draw exact", " --draw exact --use-trace-timestamps", " --request-rate 50")
        ]
    assert rates == ["trace", math.inf, "trace", 50.0]
    assert record["notes"] == [
        "3 of 12 rows of the trace failed when it was recorded (0 tokens) and are left out",
        "50 requests were asked for, and the dataset has 9",
    ]


def test_json_prints_the_line_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BenchServerThread() as server:
        bench(server, f"{SHORT} --num-prompts 3 --json --tag t", tmp_path / "o")
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads((tmp_path / "o").read_text())
    assert json.loads(out)["tag"] == "t"
    assert "/3 requests" not in err


def test_prompts_of_our_own_share_no_head(tmp_path: Path) -> None:
    with BenchServerThread() as server:
        record = bench(server, f"{SHORT} --num-prompts 30 --draw own --warmup-requests 0", tmp_path / "o")
        heads = {body["input_ids"][0] for body in server.bodies}
    assert (record["completed"], len(heads)) == (30, 30)


def test_keys_are_sent_and_never_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-7")
    with BenchServerThread() as server:
        bench(server, f"{SHORT} --num-prompts 3 --output-details --header X-Team=secret-8", tmp_path / "o")
        assert {(sent["Authorization"], sent["X-Team"]) for sent in server.headers} == {("Bearer secret-7", "secret-8")}
    shown = "".join(capsys.readouterr()) + (tmp_path / "o").read_text()
    assert "secret" not in shown


@pytest.mark.timing
def test_a_finite_rate_waits_for_the_last_gap(tmp_path: Path) -> None:
    with BenchServerThread(gap_s=0.0) as server:
        record = bench(server, f"{SHORT} --num-prompts 4 --request-rate 20 --seed 1", tmp_path / "o")
    assert record["request_rate"] == 20.0
    from dsabench.load.draw.as_bench_serving import SeededGenerators
    from dsabench.load.schedule import exact_arrivals

    generators = SeededGenerators.of(1)
    for longest in (8, 9):
        generators.lengths(longest, 0.0, 4)
    generators.legacy.randint(0, 100, size=4)
    assert record["duration"] == pytest.approx(exact_arrivals(4, 20.0, generators.legacy).end_s, abs=0.02)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--num-promts 3", "--num-promts: no such flag; did you mean --num-prompts?"),
        ("--lora-name a", "--lora-name: not supported by dsabench bench: no LoRA adapters"),
        ("--rust-client", "--rust-client: not supported"),
        ("--backend trt", "--backend: trt is not supported by dsabench bench; it has sglang,"),
        ("--backend sglnag", "did you mean sglang?"),
        ("--dataset-name mmmu", "--dataset-name: mmmu is not supported"),
        ("--num-prompts many", "--num-prompts: 'many' is no whole number"),
        ("--request-rate -1", "--request-rate: -1 is not above 0"),
        ("--goodput foo:1", "expected KEY:VALUE with KEY in ttft, tpot, e2el"),
        ("--goodput ttft:inf", "inf is not a finite number above 0"),
        ("--random-range-ratio 2", "2 is not between 0 and 1"),
        ("--extra-request-body [1]", "expected a JSON object"),
        ("--tokenize-prompt --backend vllm", "--tokenize-prompt: only with --backend sglang"),
        ("--gsp-num-turns 2", "--gsp-num-turns: chats go to a chat backend"),
        ("--gsp-zipf-alpha 2", "--gsp-zipf-alpha goes with"),
        ("--seed 4294967296", "at most 4294967295"),
        ("--num-prompts", "--num-prompts: expected one argument"),
        ("--base-url 127.0.0.1:1", "is no address like http://"),
        ("--base-url http://h:99999", "is no address like http://"),
        ("--base-url http://me:secret@h:1", "--base-url: an address with a user's name is not supported"),
        ("--port 70000", "at most 65535"),
        ("--output-file none/o.jsonl", "--output-file: none/o.jsonl: no such directory: none"),
        ("--output-file .", "--output-file: .: is a directory"),
        ("--plot p.pdf", "pictures are written as .svg"),
    ],
)
def test_wrong_flags_are_one_line(words: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parse_flags(words.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("flag", KEYS["flags"])
def test_flags_of_bench_serving_are_known_or_refused_by_name(flag: str) -> None:
    said = ""
    try:
        parse_flags([flag])
    except InputError as error:
        said = str(error)
    assert f"{flag}: no such flag" not in said


def test_abbreviations_work_as_there() -> None:
    args = parse_flags(["--num-prompt", "3", "--random-input", "5", "--random-output", "6"])
    assert (args.num_prompts, args.random_input_len, args.random_output_len) == (3, 5, 6)


def test_a_missing_server_or_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--port", "1", "--ready-check-timeout-sec", "1"]) == 3
    assert "Connection refused" in capsys.readouterr().err
    with BenchServerThread() as server:
        words = ["bench", "--base-url", server.url, "--tokenizer", "bytes", "--dataset-path", str(tmp_path / "none")]
        assert run(words) == 2
    err = capsys.readouterr().err
    assert err.endswith("none: no such file\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("more", [["--disable-tqdm"], []])
async def test_ctrl_c_ends_a_run_at_once(more: list[str], tmp_path: Path) -> None:
    """Without a progress line the worker has the main thread, with one it is beside it."""
    async with PacedServer(Pace(ttft_s=0.01, gap_s=0.1)) as server:
        words = [
            *SHORT.split(),
            "--base-url",
            server.base_url,
            "--model",
            "m",
            "--random-output-len",
            "400",
            "--num-prompts",
            "8",
            *more,
        ]
        argv = [
            sys.executable,
            "-m",
            "dsabench",
            *words,
            "--warmup-requests",
            "0",
            "--output-file",
            str(tmp_path / "o"),
        ]
        process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
        while server.in_flight < 4:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = await asyncio.wait_for(process.communicate(), 60.0)
    assert process.returncode == 130
    assert b"Traceback" not in said
    assert not (tmp_path / "o").exists()
