#!/usr/bin/env python3
"""numactl for images that have none: the options with which vLLM starts its workers, and --show.

vLLM binds each worker by `numactl --cpunodebind=N --membind=N python ...` (or --physcpubind) and starts it unbound, without an error, where
there is no numactl, as in ROCm images. The gate puts this file last in PATH, so that an image's own numactl wins. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from pathlib import Path

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_MPOL_BIND = 2
_MASK_WORDS = 16  # 1,024 NUMA nodes


class UsageError(Exception):
    """One line for standard error, as numactl writes it."""


def parse_list(text):
    """The ids of a list (`0-3,8`); numactl's `all`, `+` and `!` forms are not needed."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise UsageError(f"<{text}> is invalid")
    ids = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        ids.update(range(int(first), int(last or first) + 1))
    return ids


def cpus_of(nodes, root):
    """The CPUs of NUMA nodes; UsageError for a node that is not there."""
    cpus = set()
    for node in nodes:
        try:
            text = (root / f"sys/devices/system/node/node{node}/cpulist").read_text().strip()
        except OSError:
            raise UsageError(f"node argument {node} is out of range") from None
        cpus |= parse_list(text) if text else set()
    return cpus


def parse(arguments):
    """(options, command): the options are those that vLLM uses."""
    options, rest = {}, list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        name = {"-N": "--cpunodebind", "-C": "--physcpubind", "-m": "--membind", "-s": "--show"}.get(name, name)
        if name == "--show":
            options[name] = ""
            continue
        if name not in ("--cpunodebind", "--physcpubind", "--membind"):
            raise UsageError(f"{word} is not supported by this stand-in; install the package numactl in the image")
        if not equals:
            if not rest:
                raise UsageError(f"{name} needs a list")
            value = rest.pop(0)
        options[name] = value
    return options, rest


def bind(options, root):
    """Binds this process, and with it what it becomes. OSError where the kernel refuses."""
    wanted = None
    if "--cpunodebind" in options:
        wanted = cpus_of(parse_list(options["--cpunodebind"]), root)
    if "--physcpubind" in options:
        wanted = parse_list(options["--physcpubind"])
    if wanted is not None:
        allowed = wanted & os.sched_getaffinity(0)
        if not allowed:
            raise UsageError("sched_setaffinity: Invalid argument (none of these CPUs is allowed here)")
        os.sched_setaffinity(0, allowed)
    if "--membind" in options:
        bind_memory(parse_list(options["--membind"]))


def bind_memory(nodes):
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise UsageError(f"set_mempolicy: unknown on {platform.machine()}")
    mask = (ctypes.c_ulong * _MASK_WORDS)()
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    for node in nodes:
        if node >= bits * _MASK_WORDS:
            raise UsageError(f"node argument {node} is out of range")
        mask[node // bits] |= 1 << (node % bits)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(bits * _MASK_WORDS)):
        error = ctypes.get_errno()
        raise OSError(error, f"set_mempolicy: {os.strerror(error)}")


def become(command):
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"execution of {command[0]}: {error.strerror}") from None


def show():
    """What numactl --show prints of the process, as far as it is known without libnuma."""
    status = Path("/proc/self/status").read_text()
    memory = re.search(r"^Mems_allowed_list:\s*(\S+)", status, re.MULTILINE)
    cpus = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    return f"physcpubind: {cpus}\nmembind: {memory.group(1) if memory else ''}\n"


def main(arguments, root=Path("/")):
    try:
        options, command = parse(arguments)
        if "--show" in options:
            sys.stdout.write(show())
            return 0
        if not command:
            raise UsageError("no command given")
        bind(options, root)
        become(command)
    except UsageError as error:
        print(f"numactl: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"numactl: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
