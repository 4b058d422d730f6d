#!/usr/bin/env bash
# From a PyTorch model to training with a strategy that explains itself, in four commands: a small model, to be read and
# copied. Needs a build with ONNX import, and PyTorch.
# Usage: scripts/from_pytorch.sh [BUILD_DIRECTORY [OUTPUT_FOLDER]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/release}
out=${2:-build/from-pytorch}
ranks=2
source scripts/mpi_environment.sh
mkdir -p "$out"

step() { printf '\n== %s\n' "$*"; }

step "1. the model, exported"
/usr/bin/python3 - "$out/model.onnx" <<'END'
import sys
import warnings
import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.Hardswish(), nn.MaxPool2d(2),
                      nn.Conv2d(16, 32, 3, padding=1, groups=4), nn.SiLU(), nn.AdaptiveAvgPool2d(7), nn.Flatten(),
                      nn.Linear(32 * 7 * 7, 10))
torch.onnx.export(model.train(), torch.randn(2, 1, 28, 28), sys.argv[1], input_names=["image"],
                  dynamic_axes={"image": {0: "batch"}}, training=torch.onnx.TrainingMode.TRAINING,
                  do_constant_folding=False)
END

step "2. the model as a graph, and its parameters"
"$build/ffsearch" import "$out/model.onnx" --batch 64 --loss cross-entropy --out "$out/graph.json" \
  --weights "$out/weights.safetensors"

step "3. this machine"
"$build/ffsearch" topology --cpu-ranks "$ranks" --out "$out/topology.json"

step "4. search, and train with what is found"
"$build/ffsearch" --graph "$out/graph.json" --topo "$out/topology.json" --budget 5s --out "$out/strategy.json" \
  --html "$out/plan.html"
mpirun -n "$ranks" "$build/ffexec" --strategy "$out/strategy.json" --load "$out/weights.safetensors" --iterations 50 \
  --lr 0.05 --trace "$out/trace.json"

step "predicted and measured"
"$build/ffsearch" simulate --strategy "$out/strategy.json" --measured "$out/trace.json" --html "$out/plan.html" --quiet
echo "why this plan: $out/plan.html"
