"""PyTorch's full step of MobileNetV2, for comparison with step.py on the same core.

    taskset -c 0 python scripts/benchmarks/pytorch_step.py --batch-size 16

Needs torch and torchvision, best in an environment of their own. All weights train, batch norms keep their
statistics, AdamW, in four ways: as it comes, with channels last, compiled as well, and in bfloat16 as well.
In turn in one process; CPU ms of an image, medians over rounds.
"""

import argparse
import statistics
import time

import torch
import torchvision


def make_step(batch_size, channels_last, compiled, bfloat16):
    """Return the function that makes one step on random images, 100 classes."""
    model = torchvision.models.mobilenet_v2(num_classes=100)
    model.eval()  # batch norms keep their statistics; there is no dropout
    images, labels = torch.rand(batch_size, 3, 224, 224), torch.randint(0, 100, (batch_size,))
    if channels_last:
        model, images = (it.to(memory_format=torch.channels_last) for it in (model, images))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    forward = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            outputs = forward(images)
        torch.nn.functional.cross_entropy(outputs.float(), labels, label_smoothing=0.1).backward()
        optimizer.step()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts = ("as it comes", "channels last", "compiled", "bfloat16")  # each with those before it
    names = [parts[0], *(", ".join(parts[1:count]) for count in range(2, 5))]
    steps = {name: make_step(given.batch_size, *(part in name for part in parts[1:])) for name in names}
    took = {name: [] for name in steps}
    for number in range(given.rounds + 2):  # the first two compile and allocate
        for name, step in steps.items():
            start = time.process_time()
            step()
            if number > 1:
                took[name].append(1e3 * (time.process_time() - start) / given.batch_size)
    for name, values in took.items():
        print(f"{name:36}{statistics.median(values):8.1f} ms an image")


if __name__ == "__main__":
    main()
