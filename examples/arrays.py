"""arrays - NumPy arrays under a policy: tags, threads, an edit, a broken edit, figures, blocks."""

import threading

import numpy as np

import loam

POLICY = """
local plain  = loam.host { name = "plain" }
local frames = loam.host { name = "frames", align = 4096 }
return loam.policy { name = "example", pick = function(req)
  if req.tag:under("video") then return frames end
  return plain
end }
"""


def show(what, array):
    owner = loam.owner(array)
    print(f"{what}: tag {owner.tag}, strategy {owner.strategy}, generation {owner.generation}")


loam.events.logger.disabled = True  # the refusal is printed below
loam.policy.load(text=POLICY, name="example.lua")
loam.numpy.install()

numbers = np.arange(1000)
show("outside any tag", numbers)
with loam.tag("video.decode"):
    frame = np.zeros((1080, 1920, 3), np.uint8)
show("inside one", frame)
show("a view of it", frame[100:200, ::2])
print("on a page:", frame.ctypes.data % 4096 == 0)


@loam.tag("video.encode")
def encode():
    show("on a thread", np.empty(1000))


thread = threading.Thread(target=encode)
thread.start()
thread.join()

loam.policy.load(text=POLICY.replace("frames", "images"), name="example.lua")
show("made before an edit", frame)
show("made after it", np.empty(5))
try:
    loam.policy.load(text=POLICY.replace("req.tag", "req.tga"), name="example.lua")
except loam.PolicyError as error:
    print(f"refused: line {error.line}: {error.reason}")

for row in loam.stats(by="tag"):
    if row["tag"] == "video.decode":
        print(f"live under {row['tag']}: {row['live_blocks']} block, {row['live_bytes']} bytes")

block = loam.Block(8 * 100, "samples", zero=True)
samples = np.frombuffer(block)
samples[:] = 0.5
del block
print(f"a block that an array keeps: {samples.sum()}, tag {loam.owner(samples).tag}")

loam.numpy.uninstall()
print("uninstalled:", loam.owner(np.empty(10)), np.asarray(frame).sum() + numbers.sum())
