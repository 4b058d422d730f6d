#!/usr/bin/env bash
# Builds the image of Containerfile without a container engine, and tries it: each FROM is a bare Debian tree
# (debootstrap), each COPY copies, each RUN runs in it (chroot). Then searches and trains in the final tree, as the
# comment of Containerfile says. Needs root and a Debian mirror; half an hour on two cores, and 4 GB in /var/tmp.
# Usage: scripts/test_container.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $EUID -ne 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "test_container.sh: needs root and debootstrap (apt-get install debootstrap)" >&2
  exit 3
fi
work=$(mktemp -d /var/tmp/ffsearch_container_XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
  grep -oE 'https?://[^ ]*/debian/?( |$)' | head -1 | tr -d ' ' || true)

bare_tree() {
  if [[ ! -d $work/bare ]]; then
    debootstrap --variant=minbase bookworm "$work/bare" "${mirror:-http://deb.debian.org/debian}" >"$work/log" 2>&1 ||
      { tail -5 "$work/log" >&2; exit 3; }
    for file in /etc/apt/apt.conf.d/*proxy* /etc/resolv.conf; do
      [[ ! -e $file ]] || cp -L "$file" "$work/bare$file"
    done
  fi
  cp -a "$work/bare" "$1"
}

tree="" environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8
  DEBIAN_FRONTEND=noninteractive CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-2}")
directory=/
inside() {
  chroot "$tree" /usr/bin/env -i "${environment[@]}" sh -ec "cd $directory; $1"
}

# One instruction a line: comments go, lines that end in a backslash are joined.
stages=0
while read -r instruction arguments; do
  echo "== $instruction $arguments"
  case $instruction in
    FROM)
      [[ $arguments == debian:12* ]] || { echo "test_container.sh: only debian:12 is known" >&2; exit 3; }
      name=${arguments##* AS }
      [[ $name != "$arguments" ]] || name=final
      tree=$work/$name
      stages=$((stages + 1))
      bare_tree "$tree"
      ;;
    COPY)
      read -r from to <<<"${arguments#--from=build }"
      if [[ $arguments == --from=build* ]]; then
        mkdir -p "$tree$to"
        cp -a "$work/build"$from "$tree$to"  # may have a star
      elif [[ $from == . ]]; then
        mkdir -p "$tree$to"
        git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$tree$to" -P
      else
        mkdir -p "$tree$to"
        cp -a "$from" "$tree$to"
      fi
      ;;
    RUN) inside "$arguments" >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; } ;;
    ENV) read -ra words <<<"$arguments"; environment+=("${words[@]}") ;;
    WORKDIR) directory=$arguments; mkdir -p "$tree$directory" ;;
    CMD) ;;
    *) echo "test_container.sh: unknown instruction $instruction" >&2; exit 3 ;;
  esac
done < <(sed -e '/^#/d' -e '/^$/d' Containerfile | sed -e ':a' -e '/\\$/N; s/ *\\\n */ /; ta')

[[ $stages -eq 2 ]] || { echo "test_container.sh: expected two stages" >&2; exit 1; }
echo "== in the image"
inside "ffsearch --graph /usr/share/ffsearch/graphs/lenet.json --profile /usr/share/ffsearch/profiles \
  --topo /usr/share/ffsearch/topologies/local-cpu-2.json --proposals 2000" | head -5
inside "mpirun --oversubscribe -n 2 ffexec --strategy strategy.json --iterations 20 --verify" |
  grep -v '^iteration [0-9]'
inside "ffsearch import --help" >/dev/null
du -sh --one-file-system "$tree" | cut -f1
