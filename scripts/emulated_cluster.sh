#!/usr/bin/env bash
# A cluster on one machine: every host is a network namespace with a name of its own, links have the rate that is asked
# for, bridges are the switches, and mpirun starts ranks on the hosts as on a real cluster. docs/emulated-cluster.md.
#
#   scripts/emulated_cluster.sh --hosts 2 --ranks-per-host 1 --gb-per-s 0.125 -- mpirun ffexec --strategy s.json
#
#   --hosts N             how many hosts, node0, node1, ... (2)
#   --ranks-per-host N    slots of each host for mpirun (1)
#   --gb-per-s X          rate of each host's link, each direction, in 1e9 bytes per second (0.125, which is 1 Gb/s)
#   --delay-us X          one-way delay that each link adds (0); needs a kernel with netem
#   --switches N          the hosts stand at N switches alike, joined by one more (1: all hosts at one switch)
#   --uplink-gb-per-s X   rate of the links that join switches (that of the hosts' links)
#   --cores LIST          processors for the hosts in turn, by commas: 0,1 or, several for each, 0-1,2-3 (those that
#                         this process may use, dealt out evenly)
#   --cpu-share I=X       host I gets X of a processor's time, as by a slower processor: 1=0.5; may be repeated
#
# COMMAND runs on node0 with what mpirun needs in its environment: without -n it starts a rank for each slot, host by
# host. EMULATED_CLUSTER_RUN is a program that runs a command on another host: "$EMULATED_CLUSTER_RUN" node1 ip link.
# Exit code: COMMAND's; 2 for a wrong command line; 77, with the reason, where such a cluster cannot be made (not root,
# no namespaces). Nothing outside of the namespaces is touched, and all is removed however this ends: the interfaces
# belong to namespaces that end with their processes, and these end with this script, SIGKILL included.
set -euo pipefail

fail() { echo "emulated_cluster.sh: $*" >&2; exit 2; }
skip() { echo "skipped: $*" >&2; exit 77; }

hosts=2 ranks=1 rate=0.125 delay=0 switches=1 uplink="" cores="" shares=()

is_count() { [[ $1 =~ ^[1-9][0-9]{0,2}$ ]]; }
is_positive() { [[ $1 =~ ^[0-9]*\.?[0-9]+$ ]] && [[ $(tr -d '0.' <<<"$1") ]]; }

# Names what is wrong with an option's value.
check() {
  local option=$1 value=$2 kind=$3
  local -A named=([count]="number from 1 to 999" [positive]="positive number")
  "is_$kind" "$value" || fail "$option: $value is no ${named[$kind]}"
}

parse() {
  while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
      -h | --help) awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"; exit 0 ;;
      --hosts | --ranks-per-host | --gb-per-s | --delay-us | --switches | --uplink-gb-per-s | --cores | --cpu-share)
        [[ $# -gt 1 ]] || fail "$1 needs a value" ;;
      *) fail "unknown option $1; --help lists them, and the command follows --" ;;
    esac
    case $1 in
      --hosts) check "$1" "$2" count; hosts=$2 ;;
      --ranks-per-host) check "$1" "$2" count; ranks=$2 ;;
      --gb-per-s) check "$1" "$2" positive; rate=$2 ;;
      --delay-us) [[ $2 == 0 ]] || check "$1" "$2" positive; delay=$2 ;;
      --switches) check "$1" "$2" count; switches=$2 ;;
      --uplink-gb-per-s) check "$1" "$2" positive; uplink=$2 ;;
      --cores) cores=$2 ;;
      --cpu-share)
        [[ $2 =~ ^([0-9]+)=(.+)$ ]] || fail "--cpu-share: $2 is not HOST=SHARE, as 1=0.5"
        check "--cpu-share" "${BASH_REMATCH[2]}" positive
        shares+=("$2") ;;
    esac
    shift 2
  done
  [[ $# -gt 1 ]] || fail "no command; it follows --"
  [[ $hosts -le 200 ]] || fail "--hosts: at most 200"
  [[ $switches -le $hosts ]] || fail "--switches: $switches switches for $hosts hosts"
  local share
  for share in ${shares[@]+"${shares[@]}"}; do
    [[ ${share%%=*} -lt $hosts ]] || fail "--cpu-share: there is no host ${share%%=*}, hosts are 0 to $((hosts - 1))"
  done
  uplink=${uplink:-$rate}
}

# --- outside: what the kernel offers, control groups, and the end of everything

expect_tools() {
  [[ $EUID -eq 0 ]] || skip "an emulated cluster needs root, for network namespaces"
  local tool
  for tool in ip tc unshare nsenter setpriv taskset; do
    command -v "$tool" >/dev/null || skip "no $tool here (Debian packages iproute2 and util-linux)"
  done
  unshare --net --uts --mount --pid --fork true 2>/dev/null || skip "this process may not make namespaces"
  unshare --net sh -c 'ip link add veth0 type veth peer name veth1 && ip link add switch0 type bridge &&
    tc qdisc add dev veth0 root tbf rate 1gbit burst 64kb latency 10ms' 2>/dev/null ||
    skip "this kernel lacks veth, bridges or tbf"
  [[ $delay == 0 ]] || unshare --net sh -c 'ip link add veth0 type veth peer name veth1 &&
    tc qdisc add dev veth0 root netem delay 1ms' 2>/dev/null || skip "--delay-us: this kernel has no netem"
}

# A control group that gives a host a share of a processor. The short period keeps the host evenly slow: with the
# kernel's 100 ms it would run at full speed for 50 and stand for 50.
make_quota() {
  local share=$1 group=$2
  local quota_us
  quota_us=$(awk -v share="$share" 'BEGIN {printf "%d", share * 10000 + 0.5}')
  [[ $quota_us -ge 1000 ]] || fail "--cpu-share: at least 0.1"
  mkdir -p "$group" 2>/dev/null || skip "--cpu-share: control groups cannot be made here"
  if [[ -e $group/cpu.cfs_quota_us ]]; then
    echo 10000 >"$group/cpu.cfs_period_us" && echo "$quota_us" >"$group/cpu.cfs_quota_us"
  elif [[ -e $group/cpu.max ]]; then
    echo "$quota_us 10000" >"$group/cpu.max"
  else
    skip "--cpu-share: no processor controller in $group"
  fi 2>/dev/null || skip "--cpu-share: $group takes no quota"
}

# A control group outlives its processes, which are being killed.
remove_everything() {
  local group attempt
  for group in "$cgroups"/emulated-cluster."$$".*; do
    [[ -d $group ]] || continue
    for attempt in {1..50}; do rmdir "$group" 2>/dev/null && break; sleep 0.1; done
  done
  rm -rf "$work"
}

# Of scripts that were killed by SIGKILL: their folders and empty control groups.
remove_left_over() {
  local path owner
  for path in "$cgroups"/emulated-cluster.*.* "$temporary"/emulated-cluster.*; do
    owner=${path##*/emulated-cluster.}
    [[ ! -d $path || -d /proc/${owner%%.*} ]] || rmdir "$path" 2>/dev/null || rm -rf "$path" 2>/dev/null || true
  done
}

outside() {
  expect_tools
  cgroups=/sys/fs/cgroup temporary=${TMPDIR:-/tmp}
  [[ ! -d /sys/fs/cgroup/cpu ]] || cgroups=/sys/fs/cgroup/cpu
  remove_left_over
  work=$temporary/emulated-cluster.$$
  mkdir "$work"
  trap remove_everything EXIT
  local share
  for share in ${shares[@]+"${shares[@]}"}; do
    make_quota "${share#*=}" "$cgroups/emulated-cluster.$$.${share%%=*}"
  done
  # Dies with this script; what is inside dies with it.
  EMULATED_CLUSTER_INSIDE="$work $cgroups/emulated-cluster.$$" setpriv --pdeathsig KILL \
    unshare --net --mount --uts --pid --fork --kill-child --mount-proc bash "${BASH_SOURCE[0]}" "$@"
}

# --- inside: process 1 of the cluster's own process, mount and network namespaces

# The processors of a host: the list's entry, or its part of those that there are.
cores_of() {
  local host=$1
  if [[ $cores ]]; then
    local list
    IFS=, read -ra list <<<"$cores"
    echo "${list[host % ${#list[@]}]}"
    return
  fi
  local all=() range
  for range in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do all+=($(seq "${range%-*}" "${range#*-}")); done
  local count=${#all[@]}
  if [[ $count -lt $hosts ]]; then echo "${all[host % count]}"; return; fi
  local begin=$((host * count / hosts)) end=$(((host + 1) * count / hosts))
  (IFS=,; echo "${all[*]:begin:end - begin}")
}

# An interface sends at `rate`. What the token bucket lets through at once is what the link carries in 0.1 ms, at least
# 16 KiB: messages of more come at the rate. Segments are kept below it, else the kernel would cut each to packets. What
# waits beyond 1 MiB and 10 ms is dropped, as by a switch.
shape() {
  local interface=$1 gb_per_s=$2
  shift 2
  local numbers
  numbers=$(awk -v rate="$gb_per_s" 'BEGIN {
    burst = rate * 1e9 * 1e-4; if (burst < 16384) burst = 16384
    segment = burst > 65536 ? 65536 : burst
    printf "%.0f %.0f %.0f %.0f", rate * 8e9, burst + 2048, 1048576 + rate * 1e7, segment}')
  local bits burst limit segment
  read -r bits burst limit segment <<<"$numbers"
  "$@" ip link set dev "$interface" gso_max_size "$segment"
  "$@" tc qdisc add dev "$interface" root handle 1: tbf rate "$bits" burst "$burst" limit "$limit"
  [[ $delay == 0 ]] || "$@" tc qdisc add dev "$interface" parent 1: netem delay "${delay}us" limit 10000
}

make_switch() {
  ip link add "$1" type bridge mcast_snooping 0
  ip link set "$1" up
}

# Shell code that runs the rest of its arguments on a host, as if logged in there.
on_host() { nsenter --target "${host_pids[$1]}" --net --uts -- "${@:2}"; }

make_host() {
  local host=$1 name=node$1 switch=$2
  unshare --net --uts -- sleep infinity </dev/null >/dev/null 2>&1 &
  host_pids[host]=$!
  until [[ $(readlink "/proc/$!/ns/uts") != "$(readlink /proc/self/ns/uts)" ]]; do sleep 0.01; done
  # BBR, which some machines have by default, paces for long distances. A socket gives its interface no more than a
  # network card would take: else what is sent next stands after megabytes.
  on_host "$host" sh -c "echo $name >/proc/sys/kernel/hostname; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
    cd /proc/sys/net/ipv4; echo cubic >tcp_congestion_control || echo reno >tcp_congestion_control
    echo 262144 >tcp_limit_output_bytes" 2>/dev/null || true
  ip link add "$name" type veth peer name eth0 netns "${host_pids[host]}"
  ip link set "$name" master "$switch" up
  on_host "$host" ip link set lo up
  on_host "$host" ip address add "10.77.0.$((host + 1))/24" dev eth0
  on_host "$host" ip link set eth0 up
  shape "$name" "$rate"
  shape eth0 "$rate" on_host "$host"
  echo "10.77.0.$((host + 1)) $name" >>"$work/hosts"
  echo "$name slots=$ranks" >>"$work/hostfile"
}

# Replaces ssh: `run node1 COMMAND` goes to that host with the few variables that ssh would keep, takes the
# host's processors and its control group, and runs the command by a shell.
write_run() {
  {
    echo '#!/bin/bash'
    echo 'host=$1; shift'
    echo 'case $host in'
    local host
    for ((host = 0; host < hosts; ++host)); do
      local group="$quotas.$host" enter=""
      [[ ! -d $group ]] || enter="echo \$\$ >$group/cgroup.procs; "
      local namespaces="nsenter --target ${host_pids[host]} --net --uts --"
      echo "node$host) ${enter}at=($namespaces taskset -c $(cores_of "$host")) ;;"
    done
    echo '*) echo "no host $host in this emulated cluster" >&2; exit 255 ;;'
    echo 'esac'
    echo '[[ ${EMULATED_CLUSTER_KEEP:-} ]] && exec "${at[@]}" "$@"'
    echo 'exec "${at[@]}" env -i HOME="$HOME" PATH="$PATH" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" sh -c "$*"'
  } >"$work/run"
  chmod +x "$work/run"
}

inside() {
  local quotas
  read -r work quotas <<<"$EMULATED_CLUSTER_INSIDE"
  unset EMULATED_CLUSTER_INSIDE
  while [[ $1 != -- ]]; do shift; done
  shift
  host_pids=()
  echo 127.0.0.1 localhost >"$work/hosts"
  echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true
  ip link set lo up
  local s host
  for ((s = 0; s < switches; ++s)); do make_switch "switch$s"; done
  if [[ $switches -gt 1 ]]; then
    make_switch core
    for ((s = 0; s < switches; ++s)); do
      ip link add "up$s" type veth peer name "down$s"
      ip link set "up$s" master "switch$s" up
      ip link set "down$s" master core up
      shape "up$s" "$uplink"
      shape "down$s" "$uplink"
    done
  fi
  for ((host = 0; host < hosts; ++host)); do make_host "$host" "switch$((host * switches / hosts))"; done
  mount --bind "$work/hosts" /etc/hosts
  write_run
  # What scripts/mpi_environment.sh says, the hosts, and the way to them.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  export OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1 OMPI_MCA_mca_base_env_list="OMP_NUM_THREADS"
  export OMPI_MCA_orte_default_hostfile="$work/hostfile" OMPI_MCA_plm_rsh_agent="$work/run"
  export EMULATED_CLUSTER_RUN="$work/run" EMULATED_CLUSTER_HOSTFILE="$work/hostfile"
  local code=0
  EMULATED_CLUSTER_KEEP=1 "$work/run" node0 env -u EMULATED_CLUSTER_KEEP "$@" || code=$?
  return $code
}

# Braces: bash reads this to the end before it runs it, so that the script may change meanwhile.
{
  parse "$@"
  if [[ ${EMULATED_CLUSTER_INSIDE:-} ]]; then inside "$@"; else outside "$@"; fi
  exit
}
