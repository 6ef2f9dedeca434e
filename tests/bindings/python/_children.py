"""_children - functions that test_children's child processes run; they must import them."""

import os
import time

import numpy

import loam


def tell(size=1000):
    """Returns the policy of this process, and the owner of an array that is made here."""
    info = loam.policy.info()
    owner = None
    if loam.numpy.is_installed():
        owner = loam.owner(numpy.ones(size))
    return {"pid": os.getpid(), "policy": info.name, "path": info.path, "watching": info.watching,
            "tag": owner and owner.tag, "strategy": owner and owner.strategy,
            "function": owner and owner.func, "entered": loam.current_tag()}


def put(queue, size=1000):
    queue.put(tell(size))


def put_of_grandchild(queue, method):
    """Starts a child of this process, which puts its answer into the queue."""
    import multiprocessing
    context = multiprocessing.get_context(method)
    child = context.Process(target=put, args=(queue,))
    child.start()
    child.join(300)


def put_after_edit(queue, edited, name):
    """Waits for the event `edited`, and then until this process obeys the policy `name`."""
    queue.put(tell())
    edited.wait(300)
    end = time.monotonic() + 300
    while loam.policy.info().name != name and time.monotonic() < end:
        time.sleep(0.02)
    queue.put(tell())
