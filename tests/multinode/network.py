"""Namespaces of this machine: two networks with a cable between them, as two nodes for torchrun and gloo; mounts."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

CABLE = "cable"  # the name of the interface in either namespace
ADDRESSES = ("10.93.7.1", "10.93.7.2")
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x20000


class NoNetwork(Exception):
    """No network namespaces here; the reason."""


@contextmanager
def two_networks() -> Iterator[list[str]]:
    """The names of two network namespaces with a cable between them, for as long as the block lasts.

    Raises:
        NoNetwork: there can be none.
    """
    if shutil.which("ip") is None:
        raise NoNetwork("ip (iproute2) is not installed")
    names = [f"uni-train-{os.getpid()}-{i}" for i in (0, 1)]
    ends = [f"ut{os.getpid()}-{i}" for i in (0, 1)]
    commands = [f"netns add {names[0]}", f"netns add {names[1]}", f"link add {ends[0]} type veth peer name {ends[1]}"]
    for name, end, address in zip(names, ends, ADDRESSES, strict=True):
        commands += [
            f"link set {end} netns {name}",
            f"-n {name} link set {end} name {CABLE}",
            f"-n {name} addr add {address}/24 dev {CABLE}",
            f"-n {name} link set lo up",
            f"-n {name} link set {CABLE} up",
        ]
    try:
        for command in commands:
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
            if done.returncode:
                raise NoNetwork(f"ip {command}: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def plug(nodes: list[str]) -> None:
    """The cable, in case an earlier step took it away."""
    for node in nodes:
        subprocess.run(["ip", "-n", node, "link", "set", CABLE, "up"], check=True)


def enter(namespace: str) -> None:
    """Move this process into a network namespace."""
    descriptor = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(descriptor)


def own_mounts() -> None:
    """What this process mounts from here on is seen by it and its children alone, and goes with them."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
