"""record - records the requests of PyTorch to its caching allocator during training, as a trace.

    record.py FILE [--quick]

The format is described in tests/bench/trace/trace.h. The sizes are the requested sizes. The program
trains 20 steps (with --quick, 5) of a transformer of 6 layers of 1,024 with AdamW. Each step has a
batch of another shape: 4 to 23 rows of 64 to 511 words.
"""

import sys

import torch

QUICK = "--quick" in sys.argv


def train(mark):
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for step in range(5 if QUICK else 20):
        mark(step)
        rows, length = (int(torch.randint(low, high, (1,), generator=generator))
                        for low, high in ((4, 24), (64, 512)))
        loss = model(torch.randn(rows, length, 1024, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()


def lines(entries):
    """Yields the lines of a trace, from the allocator's history. The history has two entries for a
    free: when it is requested and when it is done, which is later if other streams use the
    block."""
    names, streams, count = {}, {0: 0}, 0
    for entry in entries:
        address = entry["addr"]
        if entry["action"] == "alloc":
            stream = streams.setdefault(entry.get("stream", 0), len(streams))
            names[address] = count
            yield f"alloc {count} {max(1, entry['size'])} {stream}"
            count += 1
        elif entry["action"] == "free_completed" and address in names:
            yield f"free {names.pop(address)}"
    for name in names.values():
        yield f"free {name}"


def main():
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, context=None)
    steps = []
    train(steps.append)
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    with open(sys.argv[1], "w") as file:
        print(f"# recorded from {len(steps)} training steps of a transformer, PyTorch "
              f"{torch.__version__} on {torch.cuda.get_device_name(0)}", file=file)
        for line in lines(entries):
            print(line, file=file)


if __name__ == "__main__":
    main()
