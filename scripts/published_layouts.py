#!/usr/bin/env python3
"""Makes runs that scripts/score.py reads of the tables of Hagemann et al. 2023, "Efficient Parallelization Layouts for
Large-Scale Distributed Model Training" (arXiv 2311.05610): 984 layouts of Llama 13B, 30B and 65B on 32 to 256 A100.

Usage: scripts/published_layouts.py DIRECTORY RUNS.csv

DIRECTORY is `data` of a clone of
https://github.com/Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts (CC BY-NC-SA 4.0, which is why
the tables are not in this repository): its *.xlsx, with those of seqpara.

Beyond the tables: vocabulary of 128,000 and batches of 4 million tokens (2,048 samples of 2,048, 512 of 8,192), which
give the published TFLOP/s; optimizer state sharded (ZeRO-1); DGX A100 (80 GB), taken as 8 HDR InfiniBand adapters of
200 Gb/s a node. The framework is Aleph Alpha's Scaling (https://github.com/Aleph-Alpha/scaling), published in 2024:
stages have as equally many of its modules as can be (an embedding, the layers, the last norm, the head;
pipe_partition_uniform), and without "RMS kernel" norms are elementwise kernels. Left out: attention by PyTorch's
softmax ("torch"), which no setting says, and runs with other errors than out of memory.
"""
import csv
import pathlib
import re
import sys
import zipfile
from xml.etree import ElementTree

NAMESPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
COLUMNS = (
    "id,source_file,gpu,gpu_mem_gb,gpus,internode_gbps_per_node,framework,model,layers,hidden,heads,kv_heads,ffn,"
    "gated_mlp,vocab,seq,gbs,mbs,ga,tp,pp,vp,cp,ep,dp,zero,sequence_parallel,recompute,attention,precision,status,"
    "step_time_s,tokens_per_s_per_gpu,peak_mem_gb,mem_kind,usable_untuned,note,norm_fusion,stage_layers").split(",")
# layers, hidden, heads, ffn: Touvron et al. 2023 (arXiv 2302.13971), table 2
SIZES = {"13B": (40, 5120, 40, 13824), "30B": (60, 6656, 52, 17920), "65B": (80, 8192, 64, 22016)}
ATTENTION = {"flash_attention2 + RMS kernel": "flash2", "flash_attention2": "flash2", "flash_attentionv1.0.8": "flash1",
             "fused": "unfused (fused softmax)"}


def rows_of(path):
    """Of the first sheet, as lists of texts."""
    with zipfile.ZipFile(path) as book:
        shared = []
        if "xl/sharedStrings.xml" in book.namelist():
            shared = ["".join(text.text or "" for text in item.iter(NAMESPACE + "t"))
                      for item in ElementTree.fromstring(book.read("xl/sharedStrings.xml"))]
        sheet = min(name for name in book.namelist() if name.startswith("xl/worksheets/sheet"))
        root = ElementTree.fromstring(book.read(sheet))
    for row in root.iter(NAMESPACE + "row"):
        cells = []
        for cell in row.iter(NAMESPACE + "c"):
            value = cell.find(NAMESPACE + "v")
            if cell.get("t") == "inlineStr":
                cells.append("".join(text.text or "" for text in cell.iter(NAMESPACE + "t")))
            elif value is not None:
                cells.append(shared[int(value.text)] if cell.get("t") == "s" else value.text)
        yield cells


def layers_of_stages(layers, stages):
    """The first stages have a module more if there are more. The embedding is one, the last norm and the head two."""
    modules, more = divmod(layers + 3, stages)
    result = [modules + (stage < more) for stage in range(stages)]
    result[0] -= 1
    result[-1] -= 2
    return result


def run_of(table, run):
    size = re.search("13B|30B|65B", table).group()
    layers, hidden, heads, ffn = SIZES[size]
    length = 8192 if "8k" in table else 2048
    batch = 512 if length == 8192 else 2048
    gpus = int(run["World Size"])
    tp, pp, micro_batch = (int(run[key]) for key in ("model_parallel_size", "pipe_parallel_size", "micro_batch_size"))
    dp = gpus // tp // pp
    time = run["Average Step Time"]
    status = "ok" if time[:1].isdigit() else "oom" if time.startswith("OOM") else "error"
    attention = ATTENTION.get(run["kernel"])
    result = dict.fromkeys(COLUMNS, "")
    result.update(
        id=f"{table}-{run['Trial ID']}", source_file="layouts-sp" if "sequence_parallel" in table else "layouts",
        gpu="A100 SXM", gpu_mem_gb=80, gpus=gpus, internode_gbps_per_node=1600, framework="Scaling",
        model="llama " + size, layers=layers, hidden=hidden, heads=heads, kv_heads=heads, ffn=ffn, gated_mlp=1,
        vocab=128000, seq=length, gbs=batch, mbs=micro_batch, ga=batch // dp // micro_batch, tp=tp, pp=pp, vp=1, cp=1,
        ep=1, dp=dp, zero=1, sequence_parallel=run.get("sequence_parallel", "0"),
        recompute="full" if run["activation_checkpointing_type"] == "every_layer" else "none",
        attention=attention or "", precision="bf16", status=status, step_time_s=time if status == "ok" else "",
        usable_untuned="yes" if attention and status != "error" else "no",
        norm_fusion="on" if "RMS" in run["kernel"] else "off",
        stage_layers=":".join(map(str, layers_of_stages(layers, pp))) if pp > 1 else "")
    return result


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    tables = sorted(pathlib.Path(sys.argv[1]).rglob("*.xlsx"), key=lambda path: path.name)
    if not tables:
        sys.exit(f"{sys.argv[1]}: no *.xlsx")
    count = 0
    with open(sys.argv[2], "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, COLUMNS)
        out.writeheader()
        for path in tables:
            _, names, *runs = rows_of(path)
            for run in runs:
                out.writerow(run_of(path.stem, dict(zip(names, run))))
            count += len(runs)
    print(f"{sys.argv[2]}: {count} runs of {len(tables)} tables")


if __name__ == "__main__":
    main()
