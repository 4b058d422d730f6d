#!/usr/bin/env bash
# Builds the Debian package and tries it on a bare Debian 12 tree: installs it there with what it depends on, runs both
# programs, and removes it. Needs root (debootstrap, chroot) and a Debian mirror; minutes, and 1 GB in /var/tmp.
# Usage: scripts/test_package.sh [PACKAGE.deb]; with a package, that one is tried, and nothing is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $EUID -ne 0 ]]; then
  echo "test_package.sh: needs root, for debootstrap and chroot" >&2
  exit 3
fi
for program in debootstrap dpkg-shlibdeps; do
  command -v $program >/dev/null && continue
  echo "test_package.sh: $program is missing: apt-get install debootstrap dpkg-dev" >&2
  exit 3
done

package=${1:-}
if [[ -z $package ]]; then
  cmake --preset release -DFF_TESTS=OFF -DFF_CUDA=OFF  # no Debian package has CUDA
  cmake --build --preset release
  (cd build/release && rm -f ffsearch_*.deb && cpack)
  package=$(ls build/release/ffsearch_*.deb)
fi

tree=$(mktemp -d /var/tmp/ffsearch_package_XXXXXX)
trap 'rm -rf --one-file-system "$tree"' EXIT
# The mirror that this machine uses.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
  grep -oE 'https?://[^ ]*/debian/?( |$)' | head -1 | tr -d ' ' || true)
echo "== a bare Debian 12 in $tree"
debootstrap --variant=minbase bookworm "$tree" "${mirror:-http://deb.debian.org/debian}" >"$tree.log" 2>&1 ||
  { tail -5 "$tree.log" >&2; rm -f "$tree.log"; exit 3; }
rm -f "$tree.log"
for file in /etc/apt/apt.conf.d/*proxy* /etc/resolv.conf; do
  [[ ! -e $file ]] || cp -L "$file" "$tree$file"
done
cp "$package" "$tree/tmp/ffsearch.deb"

inside() {
  chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}
timed() {
  local what=$1 began=$SECONDS
  shift
  "$@"
  echo "== $what: $((SECONDS - began)) s"
}

timed "install" inside sh -c 'apt-get -qq update &&
  apt-get -qq install -y --no-install-recommends /tmp/ffsearch.deb >/tmp/apt.log 2>&1 ||
  { tail -5 /tmp/apt.log; exit 1; }'
inside dpkg-query -W -f '${Package} ${Version}, ${Installed-Size} KiB, depends on ${Depends}\n' ffsearch
inside ffsearch --version
inside ffexec --version
timed "search" inside sh -c 'cd /tmp && ffsearch --graph /usr/share/ffsearch/graphs/lenet.json \
  --topo /usr/share/ffsearch/topologies/local-cpu-2.json --profile /usr/share/ffsearch/profiles --proposals 2000 |
  head -5'
timed "train on two ranks" inside sh -c 'cd /tmp && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 &&
  mpirun --oversubscribe -n 2 ffexec --strategy strategy.json --iterations 50 --verify | grep -v "^iteration [0-9]"'
inside ffsearch topology --out /tmp/machine.json
# Some trees leave manual pages out when they install packages: these are looked for in the package itself.
contents=$(dpkg-deb -c "$package")
grep -q '/usr/lib/python3/dist-packages/ffsearch/__init__.py$' <<<"$contents" ||
  { echo "test_package.sh: no Python package" >&2; exit 1; }
timed "the Python package" inside sh -c 'apt-get -qq install -y --no-install-recommends python3 >/dev/null 2>&1 &&
  cd /tmp && python3 -c "import ffsearch
plan = ffsearch.search(ffsearch.Graph.named(\"lenet\"), ffsearch.Topology.named(\"local-cpu-2\"), cost=\"analytic\")
print(plan, plan.train(iterations=20, mpirun=(\"mpirun\", \"--oversubscribe\")))"'
for file in man/man1/ff{search,exec}.1.gz bash-completion/completions/ff{search,exec} doc/ffsearch/copyright; do
  grep -q "/usr/share/$file\$" <<<"$contents" || { echo "test_package.sh: no $file" >&2; exit 1; }
done
timed "remove" inside sh -c 'apt-get -qq purge -y ffsearch >/dev/null 2>&1'
for left in /usr/bin/ffsearch /usr/bin/ffexec /usr/share/ffsearch; do
  [[ ! -e $tree$left ]] || { echo "test_package.sh: $left is still there" >&2; exit 1; }
done
echo "installed, ran and removed: $(basename "$package"), $(stat -c %s "$package") bytes"
