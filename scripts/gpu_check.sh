#!/usr/bin/env bash
# Everything that needs a GPU, in one command of at most 9 minutes, on a machine that has no Open MPI, CLI11,
# nlohmann/json or Catch2 and no network.
#
#   scripts/gpu_check.sh --look               on the machine with the GPU, in seconds: the GPU and its modes, and the
#                                             versions of driver, CUDA, cuDNN, NCCL and the C library, which the pack
#                                             has to fit
#   scripts/gpu_check.sh --pack DIR [BUILD]   where the product was built (BUILD: build/cuda): puts the programs and
#                                             what they need into DIR/pack.tar.xz
#   scripts/gpu_check.sh DIR [OUT]            on the machine with the GPU, in a checkout of the same version: unpacks
#                                             that and runs all steps
#   scripts/gpu_check.sh BUILD [OUT]          on a machine that built the product itself
#
# OUT (default: $OUT, else gpu_check.out) gets gpu_check.log, one line a step in steps.tsv, MODEL.json (the profile,
# h100.json on an H100), predicted.md, pytorch.md, calibrated.json, each as soon as it exists, so that nothing is lost
# when the command is killed. For a machine to which a copy of the checkout and DIR are brought:
#   scripts/gpu_check.sh build/pack "$OUT"
# Steps run in the order of their importance, each within its own time; their times add up to what there is. Extra steps
# follow while time is left. GPU_CHECK_SECONDS: all the time there is (540). GPU_CHECK_ONLY: a regular expression of
# steps' names. GPU_CHECK_NETWORKS: those of the comparison with PyTorch (all). GPU_CHECK_PYTHON: the interpreter with
# PyTorch. GPU_CHECK_STRETCH: each step has so many times its time (1), to rehearse the steps with slow programs such as
# those of the stand-in for CUDA.
# Exit code: 0 when no step failed, 3 without a GPU (steps that need one then say "skipped: no GPU"), else 1.
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PROGRAMS="ffexec ffsearch tests/test_gpu tests/test_gpu_ranks tests/bench_kernels"
# CUDA's libraries come with PyTorch's wheels there, the C library with every Linux.
LEFT_OUT='libcuda|libcudart|libcublas|libcudnn|libnccl|libnvrtc|libnvJitLink'
LEFT_OUT+='|ld-linux|libc\.so|libm\.so|libpthread|libdl\.so|librt\.so|linux-vdso'

fail() { echo "gpu_check.sh: $*" >&2; exit 1; }

needed_libraries() { ldd "$@" 2>/dev/null | awk '/=> \// {print $3}' | sort -u | grep -Ev "/($LEFT_OUT)" || true; }

# Open MPI is found through OPAL_* variables (unpack): its programs have their folders compiled in.
pack() {
  local folder=$1 build=${2:-$ROOT/build/cuda} work
  [[ -x $build/ffexec ]] || fail "no ffexec in $build: cmake --preset cuda && cmake --build --preset cuda"
  command -v orterun >/dev/null || fail "no orterun here; Open MPI is packed from this machine"
  work=$(mktemp -d)
  trap "rm -rf '$work'" EXIT
  mkdir -p "$work"/{bin,lib/openmpi,lib/pmix,lib/fallback,share/openmpi,share/pmix,etc} "$folder"
  local program
  for program in $PROGRAMS; do
    [[ -x $build/$program ]] || fail "no $program in $build"
    cp "$build/$program" "$work/bin/" && strip "$work/bin/$(basename "$program")"
  done
  cp -L "$(command -v orterun)" "$work/bin/orterun"
  local plugins pmix
  plugins=$(dirname "$(ldconfig -p | awk '/libmpi\.so/ {print $NF; exit}')")
  plugins=$(readlink -f "$plugins")
  plugins=$(find "$plugins" "$plugins/openmpi" -name mca_pml_ob1.so 2>/dev/null | head -1)
  [[ -n $plugins ]] || fail "Open MPI's plugins are not where its library is"
  plugins=$(dirname "$plugins")
  find "$plugins" -name 'mca_*.so' |
    grep -Ev 'ucx|ofi|psm|openib|ugni|flux|romio|gridengine|slurm|monitoring|usnic' |
    xargs -I{} cp -L {} "$work/lib/openmpi/"
  pmix=$(find "$(readlink -f "$plugins/../../..")" -path '*pmix*' -name 'pmix_mca_*.so' 2>/dev/null | head -1)
  [[ -z $pmix ]] || cp -L "$(dirname "$pmix")"/pmix_mca_*.so "$work/lib/pmix/"
  cp /usr/share/openmpi/help-*.txt "$work/share/openmpi/" 2>/dev/null
  find /usr/share -path '*pmix*' -name 'help-*.txt' -exec cp {} "$work/share/pmix/" \; 2>/dev/null
  : > "$work/etc/openmpi-mca-params.conf"
  local library
  for library in $(needed_libraries "$work"/bin/* "$work"/lib/openmpi/*.so "$work"/lib/pmix/*.so); do
    case $library in
      */libstdc++.so*|*/libgcc_s.so*) cp -L "$library" "$work/lib/fallback/" ;;  # a newer one there goes first
      *) cp -L "$library" "$work/lib/" ;;
    esac
  done
  find "$work/lib" -name '*.so*' -exec strip --strip-unneeded {} \; 2>/dev/null
  # One dictionary over all files: the programs hold the same GPU code.
  tar -C "$work" -cf - . | xz -T1 --lzma2=preset=6,dict=192MiB > "$folder/pack.tar.xz" ||
    fail "cannot write $folder/pack.tar.xz"
  local bytes
  bytes=$(stat -c %s "$folder/pack.tar.xz")
  echo "$folder/pack.tar.xz: $((bytes / 1048576)) MiB, unpacked $(du -sm "$work" | cut -f1) MiB"
  ((bytes <= 64 << 20)) ||
    fail "more than 64 MiB: build for one architecture (-DCMAKE_CUDA_ARCHITECTURES=90) and pack again"
}

# The folders of CUDA's libraries: those of PyTorch's wheels, which must be of the CUDA version that the programs were
# linked with.
cuda_folders() {
  local program=$1 wanted
  wanted=$(LD_LIBRARY_PATH=$LIBRARIES ldd "$program" 2>/dev/null | grep -oE 'libcudart\.so\.[0-9]+' | head -1)
  if [[ -z $wanted ]]; then
    echo "gpu_check.sh: the programs were built without CUDA: everything that needs it will be skipped" >&2
    return 0
  fi
  LD_LIBRARY_PATH=$LIBRARIES ldd "$program" | grep -E 'libcudart|libcublas|libcudnn|libnccl' | grep -q 'not found' ||
    return 0
  "$PYTHON" - "$wanted" <<'PYTHON_END'
import glob, os, site, sys, sysconfig
wanted = sys.argv[1]
roots = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], *site.getsitepackages(),
         *(p for p in sys.path if p.endswith("-packages"))}
folders = sorted({os.path.dirname(os.path.realpath(path)) for root in roots
                  for path in glob.glob(os.path.join(root, "nvidia", "**", "lib*.so.*"), recursive=True)})
folders += [f for f in ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib") if os.path.isdir(f)]
runtimes = sorted({os.path.basename(path) for folder in folders
                   for path in glob.glob(os.path.join(folder, "libcudart.so.*"))})
if not any(name == wanted or name.startswith(wanted + ".") for name in runtimes):
    sys.exit(f"gpu_check.sh: the programs need {wanted}; this machine has {', '.join(runtimes) or 'no CUDA runtime'}: "
             "install PyTorch for that CUDA version, or build with the toolkit of this one")
print(":".join(folders))
PYTHON_END
}

# What the pack follows from, and what would make steps fail.
look() {
  local python=${GPU_CHECK_PYTHON:-python3} modes
  if ! command -v nvidia-smi > /dev/null; then
    echo "GPU: no nvidia-smi here"
  else
    nvidia-smi --query-gpu=name,driver_version,compute_mode,mig.mode.current --format=csv,noheader | sed 's/^/GPU: /'
    modes=$(nvidia-smi --query-gpu=compute_mode --format=csv,noheader | sort -u)
    [[ $modes != *Exclusive_Process* ]] ||
      echo "compute mode Exclusive_Process: every step with several processes fails"
    [[ $modes != *Prohibited* ]] || echo "compute mode Prohibited: no step can run"
    (($(nvidia-smi -L | grep -c '^GPU') > 1)) ||
      echo "one GPU: NCCL does not support several ranks on it; those steps pretend hosts, may be slow or fail"
  fi
  "$python" - << 'PYTHON_END' || echo "no $python here"
import glob, os, site, sys, sysconfig
roots = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], *site.getsitepackages(), *sys.path}
folders = [os.path.join(root, "nvidia", "**") for root in roots if root.endswith("-packages")]
folders += ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"]
for library in ("libcudart", "libcublas", "libcudnn", "libnccl"):
    found = {os.path.basename(path) for folder in folders
             for path in glob.glob(os.path.join(folder, library + ".so.[0-9]*"), recursive=True)}
    print(f"{library}: {', '.join(sorted(found)) or 'none'}")
try:
    import torch
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "unknown"
    print(f"PyTorch {torch.__version__}: CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
          f"NCCL {nccl}")
except ImportError:
    print("PyTorch: none")
PYTHON_END
  ldd --version 2>&1 | head -1
  local libstdcpp
  libstdcpp=$(ldconfig -p 2> /dev/null | awk '/libstdc\+\+\.so\.6/ {print $NF; exit}')
  echo "libstdc++: ${libstdcpp:+$(grep -aoE 'GLIBCXX_3\.4\.[0-9]+' "$libstdcpp" | sort -uV | tail -1)}"
  echo "compute-sanitizer: $(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || echo none)"
}

unpack() {
  WORK=$(mktemp -d)
  "$PYTHON" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
    "$1/pack.tar.xz" "$WORK" 2>/dev/null ||
    tar -C "$WORK" -xf "$1/pack.tar.xz" ||
    fail "cannot unpack $1/pack.tar.xz"
  REAL=$WORK/bin
  export OPAL_PREFIX=$WORK OPAL_BINDIR=$WORK/bin OPAL_LIBDIR=$WORK/lib OPAL_PKGLIBDIR=$WORK/lib/openmpi
  export OPAL_DATADIR=$WORK/share OPAL_PKGDATADIR=$WORK/share/openmpi
  export OPAL_SYSCONFDIR=$WORK/etc PMIX_INSTALL_PREFIX=$WORK
  export OMPI_MCA_mca_base_component_path=$WORK/lib/openmpi PMIX_MCA_mca_base_component_path=$WORK/lib/pmix
  export OMPI_MCA_mca_base_param_files=$WORK/etc/openmpi-mca-params.conf
  LIBRARIES=$WORK/lib
  [[ -n $(ldconfig -p 2>/dev/null | grep 'libstdc++\.so\.6') ]] || LIBRARIES=$LIBRARIES:$WORK/lib/fallback
}

# The programs find their libraries by themselves, so that other programs (PyTorch) do not find these.
wrap() {
  local program
  BIN=$SCRATCH/bin
  mkdir -p "$BIN"
  for program in "$REAL"/*; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "%s" "$@"\n' \
      "$LIBRARIES" "$program" > "$BIN/$(basename "$program")"
    chmod +x "$BIN/$(basename "$program")"
  done
}

remaining() { echo $((BEGIN + GPU_CHECK_SECONDS - $(date +%s))); }

# report NAME OUTCOME SECONDS TEXT
report() {
  printf '%s\t%s\t%s\t%s\n' "$@" >> "$OUT/steps.tsv"
  printf -- '-- %s: %s, %s s: %s\n' "$@" | tee -a "$OUT/gpu_check.log"
}

# extra NAME SECONDS COMMAND...: its output goes to the log as it comes, its last line into the table. 0 seconds: all
# the time that is left. @within in the command becomes the seconds that it has.
FAILED=0
extra() {
  local name=$1 limit=$2 left began logged code outcome
  shift 2
  [[ $name == GPU || $name =~ ${GPU_CHECK_ONLY:-.} ]] || return 0
  if [[ -n $NO_GPU && ($1 != "$BIN"/* || -z $RUNNABLE) ]]; then
    report "$name" skipped 0 "$NO_GPU"
    return 0
  fi
  limit=$((limit * GPU_CHECK_STRETCH))
  left=$(remaining)
  if ((left < 5)); then
    report "$name" "not run" 0 "no time left"
    return 0
  fi
  ((limit > 0 && limit < left)) || limit=$left
  echo "== $name ($limit s at most): $*" | tee -a "$OUT/gpu_check.log"
  began=$(date +%s)
  set -- "${@//@within/$((limit > 12 ? limit - 6 : limit))}"
  logged=$(stat -c %s "$OUT/gpu_check.log")
  timeout -k 3 "$((limit > 8 ? limit - 3 : limit))" "$@" >> "$OUT/gpu_check.log" 2>&1
  code=$?
  tail -c "+$((logged + 1))" "$OUT/gpu_check.log" > "$SCRATCH/output"
  case $code in
    0) outcome=ok ;;
    77) outcome=skipped ;;
    124 | 137) outcome="time is up" ;;
    *) outcome="failed ($code)" ;;
  esac
  grep -q 'skipped: no GPU' "$SCRATCH/output" && outcome=skipped
  if [[ $* == *compute-sanitizer* ]]; then
    [[ $code == 127 ]] && outcome="not run"  # there is none here
    # Hazards inside libraries are not ours; running out of time shows no fault.
    [[ $code == 9 ]] && ! grep -q 'ff::cuda' "$SCRATCH/output" && outcome="ok: faults in libraries alone"
    [[ $outcome == time* ]] && outcome="not finished"
  fi
  if [[ $outcome == failed* || $outcome == time* ]]; then
    FAILED=1
    tail -n 15 "$SCRATCH/output" | cut -c1-300
  fi
  report "$name" "$outcome" $(($(date +%s) - began)) "$(telling_line)"
}

# The last line that is an outcome, else the last one.
telling_line() {
  local line
  line=$(grep 'skipped: no GPU' "$SCRATCH/output" | tail -1)
  local outcomes='cases agree|ERROR SUMMARY|RACECHECK SUMMARY|^test cases:|All tests passed'
  [[ -n $line ]] || line=$(grep -E "$outcomes" "$SCRATCH/output" | tail -1)
  [[ -n $line ]] || line=$(grep -v '^[[:space:]]*$' "$SCRATCH/output" | grep -v '^[-=]*$' | tail -1)
  sed 's/^[[:space:]]*//' <<< "$line" | cut -c1-140
}

# step NAME SECONDS COMMAND...: one of those whose times must fit.
PLANNED=0
step() {
  PLANNED=$((PLANNED + $2 * GPU_CHECK_STRETCH))
  ((PLANNED + SETUP_SECONDS <= GPU_CHECK_SECONDS || GPU_CHECK_SECONDS < 540 * GPU_CHECK_STRETCH)) ||
    fail "the steps up to \"$1\" take $((PLANNED + SETUP_SECONDS)) s of $GPU_CHECK_SECONDS"
  extra "$@"
}

SETUP_SECONDS=20  # unpacking
run_steps() {
  local networks=("$PYTHON" "$ROOT/scripts/gpu_networks.py" --bin "$BIN" --profile "$OUT/$MODEL.json")
  local pytorch=("$PYTHON" "$ROOT/scripts/bench_vs_torch.py" --device cuda --build "$BIN" --python "$PYTHON"
    --rounds 1 --seconds 1 --within @within)
  [[ -z ${GPU_CHECK_NETWORKS:-} ]] || pytorch+=(--only $GPU_CHECK_NETWORKS)
  local ranks="$BIN/test_gpu_ranks" mpirun=("$MPIRUN" --oversubscribe --bind-to none)
  local sanitizer=(env LD_LIBRARY_PATH="$LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    PATH="$PATH:/usr/local/cuda/bin" compute-sanitizer --error-exitcode 9 --tool)
  step "GPU" 25 "$ranks" threads 1 --cases 0
  [[ -z $RUNNABLE ]] || NO_GPU=$(grep 'skipped: no GPU' "$SCRATCH/output" | tail -1)
  nvidia-smi >> "$OUT/gpu_check.log" 2>&1
  step "kernels" 50 "$BIN/test_gpu" "~[convolution]" -d yes
  step "convolutions" 60 "$BIN/test_gpu" "[convolution]" -d yes
  step "1 rank, verified" 25 "${networks[@]}" smoke
  step "CUDA graph, 1 rank" 20 "$ranks" threads 1 --cuda-graph --seconds 8
  step "NCCL, 2 ranks" 40 "${mpirun[@]}" -n 2 "$ranks" nccl --seconds 18
  step "predicted, measured" 110 "${networks[@]}" predicted --within @within --out "$OUT/predicted.md"
  step "NCCL, CUDA graph" 35 "${mpirun[@]}" -n 2 "$ranks" nccl --cuda-graph --seconds 14
  step "MPI, 2 ranks" 25 "${mpirun[@]}" -n 2 "$ranks" mpi --seconds 12
  step "threads, staged" 25 "$ranks" threads --seconds 6
  step "PyTorch" 75 "${pytorch[@]}" --out "$OUT/pytorch.md"
  step "memcheck" 30 "${sanitizer[@]}" memcheck "$REAL/test_gpu" "[large]" -d yes
  # by way of env: not without a GPU
  extra "calibration" 40 env "${mpirun[@]}" -n 2 "$BIN/ffexec" --calibrate --backend cuda --transport mpi --share-gpu \
    --out "$OUT/calibrated.json"
  extra "racecheck" 60 "${sanitizer[@]}" racecheck "$REAL/test_gpu" "[large]" -d yes
  extra "NCCL, 4 ranks" 60 "${mpirun[@]}" -n 4 "$ranks" nccl --seconds 30
  extra "MPI, 4 ranks" 40 "${mpirun[@]}" -n 4 "$ranks" mpi --seconds 20
  extra "kernel benchmark" 60 "$BIN/bench_kernels"
  extra "attention, bf16" 30 "$BIN/bench_kernels" --precision bf16 --only attention
  # goes on where the table ends
  extra "predicted, more" 100 "${networks[@]}" predicted --within @within --out "$OUT/predicted.md"
  extra "predicted, bf16" 60 "${networks[@]}" predicted --precision bf16 --profile "$OUT/${MODEL}_bf16.json" \
    --only gpt2-small resnet50 rnnlm alexnet inception_v3 bert-base nmt --within @within --out "$OUT/predicted_bf16.md"
  extra "PyTorch, bf16" 120 "${pytorch[@]}" --precision bf16 --pytorch graph channels-last --out "$OUT/pytorch_bf16.md"
  extra "PyTorch, tf32" 0 "${pytorch[@]}" --precision tf32 --pytorch graph channels-last --out "$OUT/pytorch_tf32.md"
}

print_table() {
  echo
  printf '%-22s %-12s %5s  %s\n' step outcome s "last line"
  while IFS=$'\t' read -r name outcome seconds line; do
    printf '%-22s %-12s %5s  %s\n' "$name" "$outcome" "$seconds" "$line"
  done < "$OUT/steps.tsv"
}

if [[ ${1:-} == --look ]]; then
  look
  exit 0
fi
if [[ ${1:-} == --pack ]]; then
  [[ -n ${2:-} ]] || fail "--pack needs a folder"
  pack "$2" "${3:-}"
  exit 0
fi
[[ -n ${1:-} ]] || { sed -n '2,/^set /s/^# \?//p' "${BASH_SOURCE[0]}"; exit 2; }
OUT=${2:-${OUT:-gpu_check.out}}
GPU_CHECK_STRETCH=${GPU_CHECK_STRETCH:-1}
GPU_CHECK_SECONDS=${GPU_CHECK_SECONDS:-$((540 * GPU_CHECK_STRETCH))}
PYTHON=${GPU_CHECK_PYTHON:-python3}
BEGIN=$(date +%s)
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || fail "cannot write to $OUT"
: > "$OUT/gpu_check.log"
: > "$OUT/steps.tsv"
SCRATCH=$(mktemp -d)
WORK=
LIBRARIES=
trap 'rm -rf "$SCRATCH" ${WORK:+"$WORK"}' EXIT
source "$ROOT/scripts/mpi_environment.sh"
# Without single copies: they ask for a right to read other processes' memory that containers seldom give. A program
# alone starts no daemon: there is none.
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1 OMPI_MCA_plm=isolated OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_ess_singleton_isolated=1 NCCL_DEBUG=${NCCL_DEBUG:-WARN} PYTHONUNBUFFERED=1
if [[ -f $1/pack.tar.xz ]]; then
  unpack "$1"
else
  [[ -x $1/ffexec ]] || fail "neither pack.tar.xz nor ffexec in $1"
  REAL=$SCRATCH/real
  mkdir -p "$REAL"
  for program in $PROGRAMS; do [[ ! -x $1/$program ]] || ln -s "$(readlink -f "$1/$program")" "$REAL/"; done
  [[ -z $(command -v orterun) ]] || ln -s "$(command -v orterun)" "$REAL/orterun"
fi
NO_GPU=
RUNNABLE=yes  # the programs find their libraries
# Without them, an error where there is a GPU.
missing_libraries() {
  if nvidia-smi -L 2> /dev/null | grep -q GPU || compgen -G '/dev/nvidia[0-9]*' > /dev/null; then fail "$1"; fi
  RUNNABLE=
  NO_GPU="skipped: no GPU: no driver here, and $1"
}
if folders=$(cuda_folders "$REAL/ffexec"); then
  [[ -z $folders ]] || LIBRARIES=$folders${LIBRARIES:+:$LIBRARIES}
  if missing=$(LD_LIBRARY_PATH=$LIBRARIES ldd "$REAL"/* 2>&1 | grep 'not found'); then
    missing_libraries "libraries are missing: $(sort -u <<< "$missing" | tr -s '\n\t ' ' ')"
  fi
else
  missing_libraries "no CUDA libraries for the programs, see above"
fi
MODEL=$("$PYTHON" "$ROOT/scripts/gpu_networks.py" model 2>> "$OUT/gpu_check.log") || MODEL=gpu
wrap
MPIRUN=$BIN/orterun
run_steps
print_table | tee -a "$OUT/gpu_check.log"
[[ -z $NO_GPU ]] || exit 3
exit $FAILED
