"""story - the ten steps of examples/story.c in Python, with arrays."""

import numpy as np

import loam

PLAIN = """local plain = loam.host { name = 'plain' }
return loam.policy { name = 'plain', pick = function(req) return plain end }
"""
WRONG = """local plain = loam.host { name = 'plain', align = 48 }
return loam.policy { name = 'wrong', pick = function(req) return plain end }
"""


def tell_policy(step):
    info = loam.policy.info()
    print(f"{step}: generation {info.generation}, policy '{info.name}'")


def tell_owner(step, of):
    whose = loam.owner(of)
    print(f"{step}: tag '{whose.tag}', strategy '{whose.strategy}', generation {whose.generation}"
          if whose else f"{step}: nobody's")


def tell_live(step):
    live = {row["tag"]: row["live_blocks"] for row in loam.stats(by="tag")}
    print(f"{step}: pixels {live['frame.pixels']}, titles {live['frame.title']}")


def is_refused(name, text):
    try:
        loam.policy.load(text=text, name=name)
    except loam.PolicyError:
        return "yes"
    return "no"


def bytes_of(tag, size):
    with loam.tag(tag):
        return np.empty(size, "u1")


loam.policy.load("story.lua")
loam.numpy.install()
tell_policy("1 start")

frame, title = bytes_of("frame.pixels", 64 << 10), bytes_of("frame.title", 100)
tell_owner("2 a frame", frame)
tell_owner("2 its title", title[50:])

with loam.tag("frame.title"):
    scoped = np.empty(10, "u1")
tell_owner("3 in a scope", scoped)

title.resize(8 << 10, refcheck=False)
tell_owner("4 a longer title", title)

print("5 refused:", is_refused("wrong.lua", WRONG))
tell_policy("5 still")

loam.policy.load(text=PLAIN, name="plain.lua")
tell_policy("6 reload")
tell_owner("6 the frame", frame)
later = bytes_of("frame.pixels", 64 << 10)
tell_owner("6 another", later)

block = loam.Block(1000, "frame.pixels")
row = block[100:110]
memoryview(row)[:7] = b"row one"
print(f"7 a block of {len(block)} bytes, owners {block.refcount}")
block.release()
print(f"7 its slice of {len(row)} bytes: {bytes(row)[:7].decode()}")
row.release()

arena = loam.Arena("frame.title", resizable=True)
first, second = arena.alloc(4), arena.alloc(4)
memoryview(first)[:3] = b"one"
memoryview(second)[:3] = b"two"
first.resize(1000)
one, two = bytes(first)[:3].decode(), bytes(second)[:3].decode()
print(f"8 an arena of {len(arena)} bytes: {one}, {two}")

tell_live("9 live blocks")

address = frame.ctypes.data
del arena, first, second, frame, later, title, scoped
tell_owner("10 the frame", address)
tell_live("10 live blocks")
