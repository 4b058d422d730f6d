#!/usr/bin/env bash
# Installs what building, testing and the demo need, on Debian 12, with apt-get, as root or through sudo.
# With --pytorch also what the comparison with PyTorch needs (220 MB), with --plots what scripts/reproduce.sh draws
# with, with --checks what scripts/check.sh needs (clang), with --package what cpack needs. Packages
# that are there are left alone; when all are, nothing is run and no network is needed.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache                                     # build
  nlohmann-json3-dev libcli11-dev libopenmpi-dev openmpi-bin libdnnl-dev libhwloc-dev
  libonnx-dev libprotobuf-dev                                      # ONNX import
  catch2 python3 python3-numpy python3-jsonschema clang-format-14  # tests
  python3-onnx libonnx-testdata                                    # tests of the ONNX import
  libboost-context-dev                                             # tests of the CUDA backend without a GPU
  iproute2                                                         # tests on emulated clusters
  dataset-fashion-mnist                                            # data of the demo
)

fail() {
  echo "install_dependencies.sh: $*" >&2
  exit 3
}

for group in "$@"; do
  case $group in
    --pytorch) packages+=(python3-torch python3-torchvision libopenblas0-serial) ;;
    --plots) packages+=(python3-matplotlib) ;;
    --checks) packages+=(clang-14 libclang-rt-14-dev libomp-14-dev) ;;
    --package) packages+=(dpkg-dev file) ;;  # dpkg-shlibdeps, and what CPack tells binaries by
    *) fail "unknown argument $group; known: --pytorch, --plots, --checks, --package" ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this is no Debian system; install by hand what these Debian packages hold: ${packages[*]}"
fi

missing=()
for package in "${packages[@]}"; do
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "all dependencies are installed"
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  command -v sudo >/dev/null || fail "not root and no sudo here; as root, run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
as_root+=(env DEBIAN_FRONTEND=noninteractive)
install=("${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}")

echo "installing: ${missing[*]}"
# The package lists may be missing or out of date: then update them and try again.
if ! apt-cache show "${missing[@]}" >/dev/null 2>&1 || ! "${install[@]}"; then
  "${as_root[@]}" apt-get update || fail "apt-get update failed; is there a network? Missing: ${missing[*]}"
  "${install[@]}" || fail "apt-get could not install: ${missing[*]}"
fi
