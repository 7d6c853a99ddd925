"""A package named sglang whose server has real sockets and the flags, endpoints and log lines of a version, and no model.

Written into a folder for PYTHONPATH, so that dsabench drives it as it drives sglang: its own interpreter process, its
own argument parser, `/health` that is 503 at first, streamed `/generate`, `/server_info`. `STAND_IN` in its environment
makes it fail the way the runtime does: the texts are the runtime's. `STAND_IN_SCRIPT` names a Python file that gives it
a speed and answers: `pause_s(settings)` before a token, `answer(settings, prompt)` at `/v1/completions`. `STAND_IN_JOINS`
makes the machines of a server wait for each other. What is asked is noted in `asked.txt` beside its log, a path a line.
"""

from __future__ import annotations

import json
from pathlib import Path

from dsabench.sglang.accepts import from_table
from dsabench.sglang.versions import parse_version

_SERVER_ARGS = """
import argparse, json, pathlib

class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)
    def __call__(self, *_):
        pass

FLAGS = json.loads(pathlib.Path(__file__).with_name("flags.json").read_text())

def typed(text):
    try:
        return json.loads(text)
    except ValueError:
        return text

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        by_dest = {}
        for name, flag in FLAGS.items():
            by_dest.setdefault((flag["dest"], flag["takes"], flag["state"]), []).append(name)
        for (dest, takes, state), names in by_dest.items():
            choices = FLAGS[names[0]]["choices"]
            if state == "no-op":
                parser.add_argument(*names, dest=dest, action=DeprecatedAction)
            elif takes == "nothing":
                parser.add_argument(*names, dest=dest, action="store_true")
            else:
                many = {"nargs": "+"} if takes == "values" else {}
                checked = {"choices": choices} if choices else {"type": typed}
                parser.add_argument(*names, dest=dest, **checked, **many)
"""
_ENVIRON = "NAMES = {names!r}\n"
_LAUNCH = r"""
import argparse, http.server, json, os, signal, socket, sys, threading, time
from sglang.srt.server_args import ServerArgs, typed

def log(text, rank=""):
    print(f"[2026-11-21 20:00:00{rank}] {text}", flush=True)

def fail(text):
    log("Scheduler hit an exception: Traceback (most recent call last):", " TP0")
    print('  File "/x/sglang/srt/managers/scheduler.py", line 4627, in run_scheduler_process', flush=True)
    print(text, flush=True)
    log("Received sigquit from a child process. It usually means the child failed.")
    os.kill(os.getpid(), signal.SIGKILL)

parser = argparse.ArgumentParser(prog="launch_server.py")
ServerArgs.add_cli_args(parser)
args = parser.parse_args()
settings = {name: typed(value) if isinstance(value, str) else value for name, value in vars(args).items()}
mode = os.environ.get("STAND_IN", "")
ready = threading.Event()
bootstrap = settings.get("disaggregation_mode")
started = time.monotonic()

joins = "STAND_IN_JOINS" in os.environ and (settings.get("nnodes") or 1) > 1
meeting = str(settings.get("dist_init_addr")).rsplit(":", 1)

def await_others():
    with socket.create_server((meeting[0], int(meeting[1]))) as server:
        for _ in range(settings["nnodes"] - 1):
            server.accept()[0].close()

def join():
    while True:
        try:
            return socket.create_connection((meeting[0], int(meeting[1])), 1).close()
        except OSError:
            time.sleep(0.05)

def boot():
    if joins:
        await_others()
    log("Load weight begin. avail mem=138.80 GB", " TP0")
    if mode == "weights":
        fail("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. GPU 0 has a total capacity of 139.80 GiB")
    log("Load weight end. elapsed=3.21 s, type=DeepseekV32ForCausalLM, quant=fp8, avail mem=120.10 GB, mem usage=18.70 GB.", " TP0")
    fraction = settings.get("mem_fraction_static")
    if fraction is not None and fraction < 0.1:
        fail("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=%s" % fraction)
    kv = settings.get("kv_cache_dtype") or "auto"
    kv = "bfloat16" if kv in ("auto", "bf16") else kv
    pre = settings.get("dsa_prefill_backend") or ("flashmla_kv" if kv == "fp8_e4m3" else "flashmla_sparse")
    dec = settings.get("dsa_decode_backend") or ("flashmla_kv" if kv == "fp8_e4m3" else "fa3")
    log(f"Set DSA backends for {kv} KV Cache: prefill={pre}, decode={dec}.")
    dtype = "torch.float8_e4m3fn" if kv == "fp8_e4m3" else "torch.bfloat16"
    log(f"KV Cache is allocated. dtype: {dtype}, #tokens: 400000, KV size: 20.10 GB", " TP0")
    log("Capture cuda graph begin. This can take up to several minutes. avail mem=90.1 GB")
    if mode == "graph":
        fail("Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB.\nPossible solutions:\n1. set --mem-fraction-static to a smaller value")
    sys.stderr.write("Capturing batches (bs=1 avail_mem=88.1 GB): 100%|##########| 4/4 [00:01<00:00,  3.1it/s]\n")
    log("Capture cuda graph end. Time elapsed: 1.50 s. mem usage=1.20 GB. avail mem=88.90 GB.")
    chunk = settings.get("chunked_prefill_size") or 8192
    if settings.get("enable_dp_attention"):
        chunk //= settings["dp_size"]
    running = settings.get("max_running_requests") or (48 if settings.get("speculative_algorithm") else 128)
    settings.update(kv_cache_dtype=kv, dsa_prefill_backend=pre, dsa_decode_backend=dec, chunked_prefill_size=chunk)
    log(f"max_total_num_tokens=400000, chunked_prefill_size={chunk}, max_prefill_tokens=16384, max_running_requests={running}, context_len=32768, available_gpu_mem=88.90 GB")
    time.sleep(float(os.environ.get("STAND_IN_BOOT_S", "0.1")))
    ready.set()
    log("The server is fired up and ready to roll!")
    if mode == "watchdog":
        time.sleep(1.0)
        log("Watchdog timeout (self.watchdog_timeout=300)", " TP0")
        os.kill(os.getpid(), signal.SIGKILL)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, body=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path in ("/health", "/health_generate"):
            self.answer(200 if ready.is_set() else 503)
        elif self.path == "/server_info":
            states = [{"avg_spec_accept_length": 1.0}]
            self.answer(200, json.dumps({**settings, "device": "cuda", "max_total_num_tokens": 400000, "version": VERSION, "internal_states": states}).encode())
        elif self.path == "/v1/models":
            card = {"id": settings["model_path"], "object": "model", "max_model_len": 32768}
            self.answer(200, json.dumps({"data": [card]}).encode())
        else:
            self.answer(404)
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/flush_cache":
            return self.answer(200)
        asked = json.loads(body)
        asked_paths.write(self.path + "\n")
        if self.path == "/v1/completions":
            choice = {"index": 0, "text": script["answer"](settings, asked["prompt"]), "finish_reason": "stop"}
            usage = {"prompt_tokens": len(asked["prompt"]) // 4, "completion_tokens": 3}
            return self.answer(200, json.dumps({"choices": [choice], "usage": usage}).encode())
        tokens = asked["sampling_params"]["max_new_tokens"]
        new_shape = len(asked["input_ids"]) not in seen
        seen.add(len(asked["input_ids"]))
        time.sleep(0.4 if new_shape else 0.01)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for count in range(1, tokens + 1):
            time.sleep(script["pause_s"](settings))
            meta = {"prompt_tokens": len(asked["input_ids"]), "completion_tokens": count, "cached_tokens": 0}
            if settings.get("speculative_algorithm"):
                meta["spec_accept_length"] = float(os.environ.get("SGLANG_SIMULATE_ACC_LEN", 1))
            meta["finish_reason"] = {"type": "length"} if count == tokens else None
            self.wfile.write(b"data: " + json.dumps({"output_ids": [1], "meta_info": meta}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True
    def log_message(self, *_):
        pass

seen = set()
script = {"pause_s": lambda _: 0.0, "answer": lambda _, prompt: "7"}
if os.environ.get("STAND_IN_SCRIPT"):
    exec(open(os.environ["STAND_IN_SCRIPT"]).read(), script)
asked_paths = open("asked.txt", "a", buffering=1)
if settings.get("node_rank"):
    boot_later = threading.Event()
    if mode == "node":
        time.sleep(0.5)
        log("[rank1]:[E1121 20:00:00.1 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.")
        os.abort()
    if joins:
        join()
    boot_later.wait()
http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer.daemon_threads = True
server = http.server.ThreadingHTTPServer((settings.get("host") or "127.0.0.1", settings.get("port") or 30000), Handler)
threading.Thread(target=boot, daemon=True).start()
server.serve_forever()
"""
_ROUTER = r"""
import argparse, http.server, sys, urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("--pd-disaggregation", action="store_true")
parser.add_argument("--prefill", nargs="+", action="append")
parser.add_argument("--decode", action="append")
parser.add_argument("--policy")
parser.add_argument("--disable-retries", action="store_true")
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, default=30000)
args = parser.parse_args()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = urllib.request.Request(args.decode[0] + self.path, body, {"Content-Type": "application/json"})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with urllib.request.urlopen(asked) as answer:
            self.wfile.write(answer.read())
    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer((args.host, args.port), Handler).serve_forever()
"""


def install_server(site: Path, version: str = "0.5.16") -> Path:
    """Write `sglang` and `sglang_router` with the metadata of that version; returns the folder for PYTHONPATH."""
    accepted = from_table(parse_version(version))
    flags = {
        name: {"dest": flag.dest, "takes": flag.takes, "choices": list(flag.choices), "state": flag.state}
        for name, flag in accepted.flags.items()
        if name != "--help"
    }
    files = {
        "sglang/__init__.py": "",
        "sglang/srt/__init__.py": "",
        "sglang/srt/server_args.py": _SERVER_ARGS,
        "sglang/srt/flags.json": json.dumps(flags),
        "sglang/srt/environ.py": _ENVIRON.format(names=sorted(accepted.variables)),
        "sglang/launch_server.py": f"VERSION = {version!r}\n{_LAUNCH}",
        "sglang_router/__init__.py": "",
        "sglang_router/launch_router.py": _ROUTER,
        f"sglang-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n",
        f"sglang-{version}.dist-info/RECORD": "sglang/__init__.py,sha256=standin,0\n",
    }
    for name, text in files.items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return site
