"""One process of the server: an engine with its part of the model, told what to do through a pipe.

Rank 0 of a replica hears the server and passes every call on, once per step; so all ranks know the same and take the
same steps. With DP attention they do so with a scheduler per group, and the steps are the same in number.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsabench.errors import InputError
from dsabench.reference.engine import ranks
from dsabench.reference.engine.engine import Engine
from dsabench.reference.engine.kv_cache import KvTransfer
from dsabench.reference.engine.layout import RankPlacement
from dsabench.reference.engine.request import Request
from dsabench.reference.engine.settings import EngineSettings
from dsabench.reference.server.arguments import ServerArgs
from dsabench.reference.server.log_format import LOG_TIME, log_format
from dsabench.reference.server.rank_messages import (
    AbortCall,
    CallReply,
    EngineReady,
    EngineStatus,
    FlushCall,
    LimitCall,
    RankCall,
    RankPipes,
    RankReport,
    RequestProgress,
    StartRefused,
    StatusQuery,
    StepUpdate,
    StopCall,
    SubmitCall,
)
from dsabench.reference.server.resolve_settings import as_reference, as_sglang, resolve

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankChannel:
    """The pipes of one rank. Where the other end is gone, so is the reason to live."""

    number: int
    """Of the process among the ranks of all replicas."""
    seat: RankPlacement
    pipes: RankPipes

    def calls(self, *, wait: bool) -> Sequence[RankCall]:
        """What was asked since the last step; with nothing to compute, wait until something is asked.

        Raises:
            EOFError: the server, or rank 0, is gone.

        """
        if self.pipes.leader is not None:
            passed_on: Sequence[RankCall] = self.pipes.leader.recv()
            return passed_on
        calls: list[RankCall] = [self.pipes.server.recv()] if wait else []
        while self.pipes.server.poll():
            calls.append(self.pipes.server.recv())
        for other in self.pipes.others:
            other.send(calls)
        return calls

    def report(self, report: RankReport) -> None:
        """Tell the server; ranks that lead no group have nothing to tell but that they are ready."""
        if self.seat.leads or isinstance(report, StartRefused):
            self.pipes.server.send(report)


def main(args: ServerArgs, channel: RankChannel) -> None:
    """Boot, say so, and serve until told to stop or left alone."""
    if not channel.seat.leads:
        logging.getLogger().setLevel(logging.WARNING)
    if args.parallel.dp > 1:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(logging.Formatter(log_format(args.parallel.dp_rank(channel.number)), LOG_TIME))
    try:
        _serve(args, channel)
    except InputError as error:
        channel.report(StartRefused(str(error)))
    except (EOFError, ConnectionError):
        _log.info("Left alone.")


def _serve(args: ServerArgs, channel: RankChannel) -> None:
    settings = resolve(args, os.environ)
    _log_tables(settings)
    if settings.device == "cuda":
        torch.cuda.set_device(channel.number - args.ranks_here.start)
    host = "127.0.0.1" if args.dist_init_addr is None else args.dist_init_addr[0]
    connected = ranks.connect_ranks(channel.seat, settings.device, host, channel.pipes.agree)
    rank = EngineRank(Engine(settings, connected), channel, args)
    if not args.skip_server_warmup:
        rank.engine.warm_up()
    rank.run()


def _log_tables(settings: EngineSettings) -> None:
    """Name the tables that are followed, as a patched sglang does."""
    sources = {"the MHA threshold": settings.mha_threshold_source}
    if settings.prefill_backend == "flashmla_auto":
        sources["the sparse prefill kernel"] = settings.auto_rule_source
    for what, source in sources.items():
        if source.endswith(".json"):
            _log.info("DSA tuned table %s decides %s.", source, what)


class EngineRank:
    """Carries out calls between steps."""

    def __init__(self, engine: Engine, channel: RankChannel, args: ServerArgs) -> None:
        self.engine, self._channel, self._args = engine, channel, args
        self._stopping = False

    def run(self) -> None:
        """Serve until told to stop."""
        settings = self.engine.settings
        facts = EngineReady(
            settings.context_length,
            settings.pool_tokens,
            settings.pool_tokens if self._args.disaggregation_mode == "decode" else settings.device_tokens,
            settings.max_running_requests,
            self.engine.kv_bytes,
            as_sglang(self._args, settings),
            as_reference(self._args, settings),
        )
        self._channel.report(facts)
        idle = True
        while True:
            for call in self._channel.calls(wait=idle):
                self._handle(call)
            if self._stopping:
                return
            served = self.engine.step()
            idle = served is None
            self._tell(served or ())

    def _handle(self, call: RankCall) -> None:
        match call:
            case SubmitCall() if call.group == self._channel.seat.group:
                request = Request(call.id, call.prompt, call.sampling)
                request.hand_over = call.hand_over
                self.engine.scheduler.add(request)
                if call.transfer is not None:
                    self._accept(request, call.transfer)
            case AbortCall():
                self._tell(self.engine.scheduler.abort(call.id, call.message))
            case FlushCall():
                self._channel.report(CallReply(call.ticket, self.engine.scheduler.flush()))
            case LimitCall():
                fits = call.requests <= self.engine.settings.max_running_requests
                if fits:
                    self.engine.scheduler.limit = call.requests
                self._channel.report(CallReply(call.ticket, fits))
            case StatusQuery():
                self._channel.report(CallReply(call.ticket, self._status()))
            case StopCall():
                self._stopping = True

    def _accept(self, request: Request, transfer: bytes) -> None:
        """Take what a prefill server has begun; a request whose KV does not fit these caches ends at once."""
        drafting = self.engine.settings.draft_steps is not None
        try:
            request.transfer = KvTransfer.from_bytes(
                transfer, self.engine.scheduler.caches, len(request.prompt), drafting=drafting
            )
        except ValueError as error:
            self._tell(self.engine.scheduler.abort(request.id, str(error)))

    def _status(self) -> EngineStatus:
        scheduler, pool = self.engine.scheduler, self.engine.scheduler.pool
        return EngineStatus(
            self.engine.counters,
            self.engine.decode_tokens_per_s,
            len(scheduler.running) + len(scheduler.prefilling),
            len(scheduler.waiting),
            scheduler.limit,
            pool.used * pool.page_size,
            self.engine.model.ranks.collect(dict(self.engine.counters.expert_tokens)),
        )

    def _tell(self, requests: Sequence[Request]) -> None:
        if requests and self._channel.seat.leads:
            self._channel.report(tuple(_step_update(request) for request in requests))


def _step_update(request: Request) -> StepUpdate:
    tokens = request.output[request.told :]
    request.told = len(request.output)
    accepted = request.accepted if request.accepted.verify_passes else None
    update = RequestProgress(len(request.output), request.decoder.text, request.finish, time.perf_counter(), accepted)
    transfer = request.transfer.to_bytes() if request.hand_over and request.transfer else None
    return StepUpdate(request.id, tokens, request.cached_tokens, update, transfer)
