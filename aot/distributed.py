"""Several processes, on one host or many, as one machine: each sees the devices of all.

    aot.distributed.initialize("10.0.0.1:1234", num_processes=2, process_id=0)      # before the first computation

Processes find each other through a service in process 0, collectives on CPUs go through Gloo.  When a process ends without
`shutdown`, the others end within `heartbeat_timeout_seconds` with a message: what waits for it in a collective would never
return.  To go on after a failure, start all processes again and load a checkpoint.
"""
from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aot_runtime
from aot import xla


@dataclass
class _State:
    address: str
    process_id: int
    num_processes: int
    client: Any
    service: Any
    watch: Any
    shutdown_timeout: int


_state: _State | None = None


def initialize(coordinator_address: str | None = None, num_processes: int | None = None, process_id: int | None = None,
               local_device_ids: int | Sequence[int] | None = None, cluster_detection_method: str | None = None,
               initialization_timeout: int = 300, heartbeat_timeout_seconds: int = 100, shutdown_timeout_seconds: int = 300,
               coordinator_bind_address: str | None = None, slice_index: int | None = None,
               partition_index: int | None = None) -> None:
    """Join the other processes; returns when all are there.

    coordinator_address: "host:port" of process 0, num_processes, process_id: by default from the variables of Open MPI or
    SLURM (`cluster_detection_method` chooses "ompi", "slurm" or "deactivate").  coordinator_bind_address: where process 0
    listens, by default the port of its address on all interfaces, or only its address if that is of this host alone.
    local_device_ids, partition_index and slice_index (its old name) have no effect on CPUs.  Times are in seconds.
    Raises RuntimeError when called twice, after the first computation, or when processes are missing in time, and ValueError
    for arguments that are missing or do not fit.
    """
    global _state
    if _state is not None:
        raise RuntimeError("distributed.initialize should only be called once. hint: call shutdown first")
    if xla.started():
        raise RuntimeError("distributed.initialize must be called before anything is computed: the devices of this process are "
                           "fixed by then. hint: call it first in the program")
    address, count, me = _settings(coordinator_address, num_processes, process_id, cluster_detection_method)
    bind = coordinator_bind_address or aot_runtime.listening_address(address)
    try:
        aot_runtime.meet(bind, address, count, me, initialization_timeout)
    except aot_runtime.AotError as e:
        raise RuntimeError(f"{e.what}. hint: {e.hint}") from None
    ext, service = xla.ext, None
    if me == 0:
        service = _start(ext, bind, count, initialization_timeout, heartbeat_timeout_seconds, shutdown_timeout_seconds)
    client = ext.get_distributed_runtime_client(
        address, me, init_timeout=initialization_timeout, shutdown_timeout=shutdown_timeout_seconds, use_compression=True,
        heartbeat_timeout=_later(heartbeat_timeout_seconds))
    client.connect()
    watch = _Watch(client, address, me, count, heartbeat_timeout_seconds)
    _state = _State(address, me, count, client, service, watch, shutdown_timeout_seconds)
    watch.start()
    atexit.register(_at_exit)


def is_initialized() -> bool:
    """Whether `initialize` was called."""
    return _state is not None


def shutdown() -> None:
    """Leave, when all processes have come here.  Nothing can be computed over several processes afterwards."""
    global _state
    if _state is None:
        return
    left, _state = _state, None
    left.watch.leave()
    try:
        left.client.wait_at_barrier("aot_shutdown", left.shutdown_timeout * 1000, None)
        left.client.shutdown()
        if left.service is not None:
            left.service.shutdown()
    except xla.XlaRuntimeError as e:
        raise RuntimeError(f"not all processes came to shutdown within {left.shutdown_timeout} s: {str(e).splitlines()[0]}"
                           ) from None


def client_options() -> dict[str, Any]:
    """What the CPU client of this process is made with."""
    if _state is None:
        return {}
    return {"distributed_client": _state.client, "node_id": _state.process_id, "num_nodes": _state.num_processes,
            "collectives": xla.ext.make_gloo_tcp_collectives(_state.client, hostname=aot_runtime.loopback(_state.address))}


def global_state() -> _State:
    """What this process knows of the others; without a client where it is alone."""
    return _state or _State("", 0, 1, None, None, None, 0)


def client() -> Any:
    """The client of the service.  Raises RuntimeError without `initialize`."""
    if _state is None:
        raise RuntimeError("there is only this process. hint: call aot.distributed.initialize first")
    return _state.client


def _start(ext: Any, bind: str, count: int, initialization: int, heartbeat: int, shutdown_: int) -> Any:
    try:
        return ext.get_distributed_runtime_service(bind, count, heartbeat_timeout=_later(heartbeat),
                                                   cluster_register_timeout=initialization, shutdown_timeout=shutdown_)
    except (xla.XlaRuntimeError, RuntimeError) as e:
        raise RuntimeError(f"process 0 cannot listen at {bind}: {str(e).splitlines()[0]}. hint: choose a free port") from None


def _later(seconds: int) -> int:
    """C++ notices a missing process too, but can only abort: it comes second."""
    return 3 * seconds + 10


def _at_exit() -> None:
    """After an uncaught exception the others are not waited for; they notice."""
    if _state is not None and not hasattr(sys, "last_value"):
        try:
            shutdown()
        except RuntimeError as e:
            print(f"aot.distributed: {e}", file=sys.stderr)


class _Watch(threading.Thread):
    """Says that this process lives, and ends it when another one is silent for too long."""

    def __init__(self, client: Any, address: str, me: int, count: int, timeout: float):
        super().__init__(daemon=True, name="aot.distributed")
        self.client, self.address, self.me, self.timeout = client, address, me, timeout
        self.left = threading.Event()
        now = time.monotonic()
        self.heard = {i: ("", now) for i in range(count) if i != me}

    def run(self) -> None:
        beat = 0
        while not self.left.wait(min(max(self.timeout / 5, 0.1), 10)):
            beat += 1
            try:
                self.client.key_value_set(f"aot/alive/{self.me}", str(beat), True)
                found = self.client.key_value_dir_get("aot/alive/")
            except Exception as e:  # whatever it is, process 0 does not answer
                self._end(f"process 0 at {self.address} cannot be reached: {str(e).splitlines()[0]}")
                return
            self._listen({int(k.rpartition("/")[2]): v for k, v in found})

    def _listen(self, said: dict[int, str]) -> None:
        now = time.monotonic()
        for i, (before, since) in list(self.heard.items()):
            word = said.get(i, "")
            if word == "left":
                del self.heard[i]
            elif word != before:
                self.heard[i] = word, now
            elif now - since > self.timeout:
                self._end(f"process {i} has not been heard of for {self.timeout} s")

    def leave(self) -> None:
        self.left.set()
        try:
            self.client.key_value_set(f"aot/alive/{self.me}", "left", True)
        except Exception:  # the service may be gone
            pass

    def _end(self, why: str) -> None:
        if not self.left.is_set():
            print(f"aot.distributed: {why}; process {self.me} ends", file=sys.stderr, flush=True)
            os._exit(1)


# ---- settings from the environment -------------------------------------------------------------------------------------

def _settings(address: str | None, count: int | None, me: int | None, method: str | None) -> tuple[str, int, int]:
    if None in (address, count, me) and method != "deactivate":
        found = _detect(method)
        address = found.get("address") if address is None else address
        count, me = found.get("count") if count is None else count, found.get("me") if me is None else me
    if address is None:
        raise ValueError("coordinator_address should be defined. hint: give \"host:port\" of process 0")
    if not re.search(r":\d+$", address):
        raise ValueError(f"coordinator_address {address!r} has no port. hint: write host:port")
    if count is None or me is None:
        raise ValueError("num_processes and process_id should be defined. hint: give both, or start under Open MPI or SLURM")
    if not 0 <= me < count:
        raise ValueError(f"process_id {me} is not one of {count} processes")
    return address, count, me


def _detect(method: str | None) -> dict[str, Any]:
    """Address, count and me, as far as the environment tells."""
    for name, (sign, read) in _CLUSTERS.items():
        if method in (None, name) and sign in os.environ:
            return read(os.environ)
    if method is not None and method not in _CLUSTERS:
        raise ValueError(f"unknown cluster_detection_method {method!r}. hint: there are {', '.join(_CLUSTERS)}, deactivate")
    return {}


def _port(job: int) -> int:
    """A port above 61,439 that jobs on the same hosts are unlikely to share."""
    return job % (1 << 12) + (1 << 16) - (1 << 12)


def _slurm(env: Any) -> dict[str, Any]:
    job, nodes = env["SLURM_JOB_ID"], env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))
    first = re.match(r"([^,\[]*)(?:\[([^,\-\]]*))?", nodes)         # node[003-005,009],other -> node003
    host = "".join(first.groups("")) if first else ""
    return {"address": f"{host}:{_port(int(job))}" if host and job.isdigit() else None,
            "count": _number(env.get("SLURM_NTASKS")), "me": _number(env.get("SLURM_PROCID"))}


def _ompi(env: Any) -> dict[str, Any]:
    uri = env.get("OMPI_MCA_orte_hnp_uri", "")                      # 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
    found = re.match(r"(\d+)\.\d+;tcp\d?://(?:\[)?([^,:\]]+)", uri)
    return {"address": f"{found[2]}:{_port(int(found[1]))}" if found else None,
            "count": _number(env.get("OMPI_COMM_WORLD_SIZE")), "me": _number(env.get("OMPI_COMM_WORLD_RANK"))}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


#: name -> (variable that shows its presence, what it says)
_CLUSTERS = {"ompi": ("OMPI_COMM_WORLD_SIZE", _ompi), "slurm": ("SLURM_JOB_ID", _slurm)}
