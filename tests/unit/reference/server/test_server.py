"""sglang's interface, over real sockets."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time

import pytest

from unit.reference.engines import prompt
from unit.reference.server.serving import serving


def body(text="hello", new=6, **sampling):
    return {"text": text, "sampling_params": {"max_new_tokens": new, "temperature": 0, "ignore_eos": True, **sampling}}


def quiet(server, timeout_s=5.0):
    """Wait until nothing runs; the pages held then."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        text = server.get("/metrics")[1]
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        running, queued, used = (
            float(values[f'sglang:{name}{{model_name="tiny"}}'])
            for name in ("num_running_reqs", "num_queue_reqs", "num_used_tokens")
        )
        if not running and not queued:
            return used
        time.sleep(0.02)
    raise AssertionError("still running")


def test_answer_has_sglangs_fields(server):
    answer = server.generate("hello", new=6)
    assert len(answer["output_ids"]) == 6
    meta = answer["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (5, 6, 0)
    assert meta["e2e_latency"] > 0
    assert "spec_accept_length" not in meta


def test_text_and_its_bytes_are_one_prompt(server):
    assert server.generate("héllo", new=6)["text"] == server.generate(list("héllo".encode()), new=6)["text"]


def test_stream_is_cumulative_and_ends_as_the_plain_answer(server):
    frames = server.frames(body())
    assert [frame["meta_info"]["completion_tokens"] for frame in frames] == [
        len(frame["output_ids"]) for frame in frames
    ]
    assert all(frame["meta_info"]["finish_reason"] is None for frame in frames[:-1])
    for before, after in itertools.pairwise(frames):
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert after["text"].startswith(before["text"])
    whole = server.generate("hello", new=6)
    assert frames[-1]["output_ids"] == whole["output_ids"]
    assert frames[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 6}


def test_batches_keep_their_order(server):
    answers = json.loads(server.post("/generate", {**body(["a", "bc"]), "rid": "pair"})[1])
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [1, 2]
    assert [answer["meta_info"]["id"] for answer in answers] == ["pair_0", "pair_1"]
    last = {frame["index"]: frame["output_ids"] for frame in server.frames(body(["a", "bc"]))}
    assert [last[0], last[1]] == [answer["output_ids"] for answer in answers]


def test_sampling(server):
    greedy = server.generate("hello", new=12)["output_ids"]
    assert server.generate("hello", new=12, temperature=1.0, top_k=1)["output_ids"] == greedy
    assert server.generate("hello", new=12, temperature=1.0, top_p=1e-6)["output_ids"] == greedy
    seeded = [server.generate("hello", new=12, temperature=1.0, seed=seed)["output_ids"] for seed in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]


def test_stop_strings_and_tokens(server):
    whole = server.generate("hello", new=12)
    third = whole["output_ids"][2]
    assert third < 128
    stopped = server.generate("hello", new=12, stop=chr(third))
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": chr(third)}
    assert stopped["text"] == whole["text"].partition(chr(third))[0]
    by_token = server.generate("hello", new=12, stop_token_ids=[third])
    assert by_token["meta_info"]["finish_reason"] == {"type": "stop", "matched": third}
    assert by_token["output_ids"] == whole["output_ids"][: whole["output_ids"].index(third) + 1]


@pytest.mark.parametrize(
    ("request_body", "complaint"),
    [
        (b"{", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b"{}", "give either text or input_ids"),
        ({"text": "a", "input_ids": [1]}, "give either text or input_ids"),
        ({"text": ""}, "a prompt is empty"),
        ({"text": []}, "a prompt is empty"),
        ({"input_ids": [[1], []]}, "a prompt is empty"),
        ({"input_ids": [259]}, "less than 259"),
        ({"input_ids": [-1]}, "greater than or equal to 0"),
        ({"input_ids": "abc"}, "input_ids"),
        ({"text": "a", "sampling_params": {"max_new_tokens": 0}}, "sampling_params"),
        ({"text": "a", "sampling_params": {"max_new_tokens": "4"}}, "max_new_tokens"),
        ({"text": "a", "sampling_params": {"temperature": -1}}, "temperature"),
        ({"text": "a", "sampling_params": {"temprature": 1}}, "temprature"),
        ({"text": "a", "stream": "yes"}, "stream"),
        ({"text": "a", "return_logprob": True}, "return_logprob"),
        ({"text": ["a", "b"], "rid": ["x"]}, "1 rid"),
        ({"text": ["a", "b"], "rid": ["x", "x"]}, "another request with this id"),
        ({"input_ids": [1] * 2048}, "longer than the model's context length (2048 tokens)"),
    ],
)
def test_wrong_bodies_are_400_with_a_message(server, request_body, complaint):
    status, text = server.post("/generate", request_body)
    assert status == 400
    assert complaint in json.loads(text)["error"]["message"]


def test_fields_of_sglangs_own_clients_are_taken(server):
    extra = {"lora_path": None, "return_logprob": False, "logprob_start_len": -1, "image_data": None}
    assert server.post("/generate", {**body(), **extra})[0] == 200


def test_unknown_paths_and_methods(server):
    assert server.get("/nothing")[0] == 404
    status, text = server.get("/generate")
    assert (status, "message" in json.loads(text)["error"]) == (405, True)


def test_information(server):
    assert server.get("/health")[0] == server.get("/health_generate")[0] == 200
    models = json.loads(server.get("/v1/models")[1])
    assert (models["data"][0]["id"], models["data"][0]["max_model_len"]) == ("tiny", 2048)
    assert server.get("/model_info") == server.get("/get_model_info")
    assert json.loads(server.get("/model_info")[1])["model_path"] == "tiny"
    info, old = server.info(), json.loads(server.get("/get_server_info")[1])
    assert info.keys() == old.keys()
    assert info["internal_states"][0].keys() >= {"last_gen_throughput", "memory_usage"}
    assert info["max_total_num_tokens"] == 8192


def test_health_generate_really_generates(server):
    before = server.counters()["generated_tokens"]
    assert server.get("/health_generate")[0] == 200
    assert server.counters()["generated_tokens"] == before + 1


def test_metrics_have_sglangs_names(server):
    server.generate("hello", new=50)
    text = server.get("/metrics")[1]
    for name in (
        "num_running_reqs",
        "num_queue_reqs",
        "token_usage",
        "gen_throughput",
        "cache_hit_rate",
        "prompt_tokens_total",
        "generation_tokens_total",
        "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_sum",
        "e2e_request_latency_seconds_count",
    ):
        assert f"sglang:{name}{{" in text, name
    total = next(line for line in text.splitlines() if line.startswith("sglang:generation_tokens_total{"))
    assert float(total.split()[-1]) >= 50


def test_flush_empties_the_prefix_cache(server):
    tokens = prompt(100, seed=42)
    server.generate(tokens)
    assert server.generate(tokens)["meta_info"]["cached_tokens"] == 64
    assert server.post("/flush_cache", b"")[0] == 200
    assert server.generate(tokens)["meta_info"]["cached_tokens"] == 0
    assert server.get("/flush_cache")[0] == 200


def test_flush_is_refused_while_requests_run_and_abort_ends_them(server):
    frames: list[dict] = []
    thread = threading.Thread(target=lambda: frames.extend(server.frames({**body(new=2000), "rid": "long"})))
    thread.start()
    _until_running(server)
    assert server.post("/flush_cache", b"")[0] == 400
    assert server.post("/generate", {**body(), "rid": "long"})[0] == 400
    assert server.post("/abort_request", {"rid": "nobody"})[0] == 200
    assert server.post("/abort_request", {"rid": "long"})[0] == 200
    thread.join(10)
    assert frames[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    assert quiet(server) == 0
    assert server.post("/abort_request", {})[0] == 400
    assert server.post("/abort_request", {"abort_all": True})[0] == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_pages(server, stream):
    aborted = server.counters()["aborted_requests"]
    data = json.dumps({**body(new=2000), "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        client.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        _until_running(server)
    assert quiet(server) == 0
    assert server.counters()["aborted_requests"] == aborted + 1
    assert server.generate("still here", new=3)["output_ids"]


def test_many_at_once_are_served_as_one_batch(server):
    texts = [f"client {number}" for number in range(12)]
    alone = [server.generate(text, new=20)["text"] for text in texts]
    answers: dict[str, str] = {}
    threads = [
        threading.Thread(target=lambda text=text: answers.update({text: server.generate(text, new=20)["text"]}))
        for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (
        sum(answers[text] == other for text, other in zip(texts, alone, strict=True)) >= 10
    )  # bfloat16 may round apart
    assert server.counters()["max_decode_step_requests"] > 4
    assert quiet(server) == 0


def _until_running(server):
    end = time.monotonic() + 5
    while 'num_running_reqs{model_name="tiny"} 1.0' not in server.get("/metrics")[1]:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_running_server_takes_another_limit_of_requests():
    """What ran shows it: with two at once steps of two, after the change never more than one."""

    def steps_of_decode(server):
        threads = [threading.Thread(target=server.generate, args=(prompt(20 + n), 12)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return server.counters()["decode_step_requests"]

    def limit_of(server):
        return [state["pp_max_micro_batch_size"] for state in server.info()["internal_states"]]

    with serving("--max-running-requests", "2") as server:
        before = steps_of_decode(server)
        assert limit_of(server) == [2]
        assert set(before) == {"1", "2"}
        change = {"server_args": {"pp_max_micro_batch_size": 1}}
        assert server.post("/set_internal_state", change) == (200, "[true]")
        assert limit_of(server) == [1]
        after = steps_of_decode(server)
        assert (after["2"], after["1"] > before["1"]) == (before["2"], True)
        assert server.post("/set_internal_state", {"server_args": {"pp_max_micro_batch_size": 3}}) == (200, "[false]")
        assert limit_of(server) == [1]
        for wrong in ({"pp_max_micro_batch_size": 0}, {"pp_max_micro_batch_size": "2"}, {"max_running_requests": 1}):
            status, said = server.post("/set_internal_state", {"server_args": wrong})
            assert status == 400, said
        assert limit_of(server) == [1]
