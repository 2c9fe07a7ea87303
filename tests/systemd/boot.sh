#!/bin/bash
# boot.sh SHARED CHECKOUT PYTHON PACKAGES COMMAND...
#
# Starts a systemd of its own as PID 1 of new namespaces (mounts, processes, network, names, cgroups), on a throw-away
# copy of this machine's root, and has it run COMMAND as root; when that ends, the machine is switched off. Needs root,
# overlayfs and systemd's program. What it does to its root is gone afterwards, except in the folder SHARED, which is
# /proof inside. CHECKOUT, PYTHON (the folder of an installed Python) and PACKAGES (the folder of its libraries) are
# inside /opt/checkout, /opt/python and /opt/packages, read-only, wherever they are outside.
#
# Exit codes: 0 when COMMAND ended with 0, 77 when no systemd can be started here, else 1.
set -euo pipefail

if [ "${1-}" != inside ]; then
  shared=$1
  [ "$(id -u)" = 0 ] || { echo "it takes root to start a systemd"; exit 77; }
  [ -x /lib/systemd/systemd ] || { echo "systemd is not installed"; exit 77; }
  for tool in unshare pivot_root ip systemctl; do
    command -v $tool > /dev/null || { echo "$tool is not installed"; exit 77; }
  done
  # A folder of our own in each hierarchy of cgroups is the root of what the inner systemd sees.
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then hierarchies=(.); else hierarchies=(systemd unified memory pids cpu); fi
  mine=threadfast-proof-$$
  folders=()
  for each in "${hierarchies[@]}"; do
    [ ! -d "/sys/fs/cgroup/$each" ] || folders+=("/sys/fs/cgroup/$each/$mine")
  done
  # shellcheck disable=SC2329 # the trap calls it
  tidy() {
    umount --lazy "$shared/disk" 2> /dev/null || true
    for folder in "${folders[@]}"; do
      for _ in 1 2 3 4 5; do
        find "$folder" -depth -type d -exec rmdir {} + 2> /dev/null || true
        [ -d "$folder" ] || break
        sleep 0.2
      done
    done
  }
  trap tidy EXIT
  mkdir -p "$shared/disk" "$shared/out"
  mount -t tmpfs -o mode=755 threadfast-proof "$shared/disk" || { echo "nothing can be mounted here"; exit 77; }
  mkdir "$shared/disk/"{upper,work,root}
  mkdir "${folders[@]}" || { echo "no cgroup can be made here"; exit 77; }
  # Times are measured inside: whatever else this machine does must not be in them.
  for folder in "${folders[@]}"; do
    [ ! -e "$folder/cpu.shares" ] || echo 65536 > "$folder/cpu.shares"
    [ ! -e "$folder/cpu.weight" ] || echo 10000 > "$folder/cpu.weight"
  done
  (
    for folder in "${folders[@]}"; do echo "$BASHPID" > "$folder/cgroup.procs"; done
    exec timeout --signal=KILL "${PROOF_S:-900}" \
      unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child=SIGKILL "$BASH" "$0" inside "$@"
  ) > "$shared/out/console" 2>&1 < /dev/null || true
  [ -e "$shared/out/exit" ] || { tail -n 20 "$shared/out/console"; echo "no systemd could be started"; exit 1; }
  [ "$(cat "$shared/out/exit")" = 0 ]
  exit
fi

shift
shared=$1 checkout=$2 python=$3 packages=$4
shift 4
root=$shared/disk/root

mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$shared/disk/upper,workdir=$shared/disk/work" "$root"
cd "$root"
mkdir -p proof opt/checkout opt/python opt/packages
mount --bind "$shared/out" proof
for pair in "$checkout:opt/checkout" "$python:opt/python" "$packages:opt/packages"; do
  mount --bind "${pair%%:*}" "${pair#*:}"
  mount -o remount,bind,ro "${pair#*:}"
done

# A Python that is built with a shared library looks for it where it was first.
if [ -n "$(echo opt/python/lib/libpython*.so.*)" ]; then
  echo /opt/python/lib > etc/ld.so.conf.d/000-proof.conf
  chroot . /sbin/ldconfig
fi

# A machine that has never been started before, with nothing of this one's to start.
rm -rf etc/systemd/system/*.wants etc/systemd/system/default.target
# The kernel is shared: what would set its variables, load its modules or look for its devices stays off.
for each in systemd-{sysctl,modules-load,udevd,udev-trigger,remount-fs,random-seed,tmpfiles-setup-dev}.service \
  systemd-udevd-{control,kernel}.socket systemd-{binfmt,hwdb-update,update-utmp,logind}.service kmod-static-nodes.service \
  proc-sys-fs-binfmt_misc.automount sys-kernel-{debug,tracing,config}.mount sys-fs-fuse-connections.mount dev-hugepages.mount; do
  ln -sf /dev/null "etc/systemd/system/$each"
done
echo 0123456789abcdef0123456789abcdef > etc/machine-id
echo proof > etc/hostname
cat > etc/systemd/system/proof.target <<'UNIT'
[Unit]
Requires=multi-user.target
Wants=proof.service
After=multi-user.target
AllowIsolate=yes
UNIT
cat > etc/systemd/system/proof.service <<'UNIT'
[Unit]
After=basic.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=infinity
WorkingDirectory=/opt/checkout
Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/root
StandardOutput=append:/proof/said
StandardError=inherit
ExecStart=/bin/bash /proof/command
ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS > /proof/exit'
UNIT
printf 'exec %s\n' "$(printf '%q ' "$@")" > proof/command

mount -t proc proc proc
mount -t sysfs sysfs sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  for each in memory pids cpu; do
    [ -d "/sys/fs/cgroup/$each" ] || continue
    mkdir "sys/fs/cgroup/$each"
    mount -t cgroup -o "$each" cgroup "sys/fs/cgroup/$each"
  done
  mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
  mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
fi
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do [ ! -e "/dev/$device" ] || cp -a "/dev/$device" dev/; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx # without it no service gets devices of its own
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=1777 tmpfs var/tmp
ip link set lo up
ip address add 169.254.169.254/32 dev lo # an address that clouds keep their secrets at
pivot_root . mnt
umount --lazy /mnt
mount --make-rshared / # else credentials do not reach the services
exec env -i container=unshare PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=proof.target --log-target=console --log-level=warning --show-status=no
