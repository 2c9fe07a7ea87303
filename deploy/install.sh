#!/bin/bash
# Installs Threadfast from this checkout as a systemd service. Run it as root:
#
#   install.sh [install]       user, folders, program, unit; a second run changes nothing
#   install.sh upgrade         the same for a changed checkout: snapshot, switch, wait for READY; on failure go back
#   install.sh rollback        back to the previous version; --snapshot FOLDER restores that data too
#   install.sh credentials     after you add or remove a file in the credentials folder
#   install.sh uninstall       removes everything but settings, credentials, data and snapshots; --purge removes those too
#
#   --extra NAME        install this extra too (otel, browser, postgres); upgrades keep it
#   --dry-run           print what would be done, and do nothing
#   --wheels FOLDER     install the packages from this folder, not from the network
#   --python PROGRAM    create the environment with this Python, 3.11 or newer (default: python3)
#   --root FOLDER       do everything below this folder and leave this machine alone: no user, no owners, no systemctl
#   --yes               do not ask before --purge
#
# Where things are: the program in /opt/threadfast/<version>, with the links `current` and `previous`; settings and
# credentials in /etc/threadfast; data in /var/lib/threadfast; snapshots in /var/backups/threadfast. A version is the
# number in pyproject.toml with a digest of the program, so every change is a new version.
#
# Exit codes: 0 done, 1 failed (after a failed upgrade the previous version is started again), 2 wrong usage.
set -euo pipefail
umask 022

SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
USER_NAME=threadfast
READY_S=${THREADFAST_READY_S:-120} # seconds that a new version may take to serve
STEADY_S=${THREADFAST_STEADY_S:-5} # and seconds that it must keep running
SYSTEMCTL=${THREADFAST_SYSTEMCTL-systemctl}

command=install root='' wheels='' python=python3 snapshot='' dry='' purge='' yes='' changes=0
extras=()

main() {
  case "${1-}" in
    install | upgrade | rollback | credentials | uninstall) command=$1 && shift ;;
  esac
  while [ $# -gt 0 ]; do
    case "$1" in
      --dry-run) dry=1 ;;
      --purge) purge=1 ;;
      --yes) yes=1 ;;
      --extra)
        [ -e "$SOURCE/requirements-${2-}.lock" ] && [ "$2" != dev ] || wrong "--extra: otel, browser or postgres, not '${2-}'"
        extras+=("$2")
        shift
        ;;
      --root | --wheels | --python | --snapshot)
        [ $# -gt 1 ] || wrong "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
      -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" && exit 0 ;;
      *) wrong "no such thing: $1" ;;
    esac
    shift
  done
  if [ -n "$root" ]; then
    [ -d "$root" ] || wrong "--root: $root is not a folder"
    root=$(cd "$root" && pwd)
    SYSTEMCTL=${THREADFAST_SYSTEMCTL-}
  elif [ "$(id -u)" != 0 ] && [ -z "$dry" ]; then
    wrong "this takes root: sudo $0 $command"
  fi
  wheels=${wheels:+$(cd "$wheels" && pwd)}
  opt=$root/opt/threadfast etc=$root/etc/threadfast data=$root/var/lib/threadfast
  backups=$root/var/backups/threadfast
  unit=$root/etc/systemd/system/threadfast.service
  link=$root/usr/local/bin/threadfast
  "do_$command"
}

do_install() {
  local id was=''
  id=$(version_here)
  [ ! -L "$opt/current" ] || was=$(version_now)
  if [ "${was:-$id}" != "$id" ]; then
    fail "$was is installed, this is $id: $0 upgrade"
  fi
  the_user
  folder "$opt" 755
  folder "$etc" 750 "root:$USER_NAME"
  folder "$etc/credentials" 700 root:root
  folder "$data" 700 "$USER_NAME:$USER_NAME"
  if [ ! -e "$etc/settings.json" ]; then
    text "$etc/settings.json" 640 '{"data": "/var/lib/threadfast"}'
    owned "$etc/settings.json" "root:$USER_NAME"
  fi
  program "$id"
  points_to "$opt/current" "$id"
  folder "$(dirname "$link")" 755
  points_to "$link" /opt/threadfast/current/bin/threadfast
  the_unit "$opt/$id"
  the_credentials
  [ -L "$(dirname "$unit")/multi-user.target.wants/threadfast.service" ] || ctl enable --quiet threadfast
  if [ $changes = 0 ]; then
    echo "nothing to change: $id is installed"
  elif [ -n "$dry" ]; then
    done_ "installed: $id"
  elif [ -n "$was" ]; then
    echo "installed: $id; restart the service to use it: systemctl restart threadfast"
  else
    cat <<END
installed: $id
next:      write $etc/settings.json, and each secret into a file of $etc/credentials ("file:NAME" in the settings)
           $0 credentials && threadfast check --settings $etc/settings.json
           systemctl start threadfast && journalctl -fu threadfast
END
  fi
}

do_upgrade() {
  local id before kept runs=''
  [ -L "$opt/current" ] || fail "nothing is installed: $0 install"
  id=$(version_here) before=$(version_now)
  if [ "$id" = "$before" ]; then
    do_install # there may be a new extra
    return
  fi
  program "$id" # beside the running one
  checked "$id" || fail "the new version does not accept the settings; $before keeps running"
  if serves; then runs=1; fi
  [ -z "$runs" ] || ctl stop threadfast # messages that arrive now are read after the start
  kept=$backups/$(date -u +%Y%m%dT%H%M%SZ)-$before
  folder "$backups" 700
  do_ cp -a --reflink=auto "$data" "$kept"
  points_to "$opt/previous" "$before"
  switch_to "$id"
  if [ -n "$runs" ] && ! comes_up; then
    echo "$id does not start; going back to $before"
    ctl stop threadfast || true
    if [ "$(schema_in "$data")" != "$(schema_in "$kept")" ]; then data_from "$kept"; fi
    switch_to "$before"
    ctl start --no-block threadfast
    fail "upgrade failed; $before was started again. The log of the new version: journalctl -u threadfast"
  fi
  tidy
  done_ "upgraded: $before -> $id; the data from before: $kept"
}

do_rollback() {
  local before now runs=''
  [ -L "$opt/previous" ] || fail "there is no previous version"
  [ -z "$snapshot" ] || [ -d "$snapshot" ] || fail "--snapshot: $snapshot is not a folder"
  before=$(readlink "$opt/previous") now=$(version_now)
  if serves; then runs=1; fi
  ctl stop threadfast
  [ -z "$snapshot" ] || data_from "$snapshot"
  points_to "$opt/previous" "$now"
  switch_to "$before"
  if [ -n "$runs" ] && ! comes_up; then
    fail "$before does not start: see journalctl -u threadfast. If the data is from a newer version: --snapshot FOLDER"
  fi
  done_ "rolled back: $now -> $before"
}

do_credentials() {
  the_credentials
  if [ $changes = 0 ]; then echo "nothing to change"; else echo "${dry:+then: }restart the service to load them: systemctl restart threadfast"; fi
}

do_uninstall() {
  local answer=''
  if [ -n "$purge" ] && [ -z "$yes$dry" ]; then
    printf '%s, %s and %s will be deleted: all conversations, settings and secrets. Type "purge": ' "$data" "$etc" "$backups"
    read -r answer || true
    [ "$answer" = purge ] || fail "nothing was done"
  fi
  if [ -e "$unit" ]; then
    ctl disable --quiet --now threadfast
    do_ rm -f "$unit" "$unit.d/credentials.conf"
    [ ! -d "$unit.d" ] || do_ rmdir --ignore-fail-on-non-empty "$unit.d"
    ctl daemon-reload
  fi
  do_ rm -rf "$link" "$opt"
  if [ -n "$purge" ]; then
    do_ rm -rf "$data" "$etc" "$backups"
    if [ -z "$root" ] && getent passwd $USER_NAME > /dev/null; then do_ userdel $USER_NAME; fi
    done_ "uninstalled; nothing is left"
  else
    done_ "uninstalled; kept: $data $etc $backups"
  fi
}

# The program

version_here() {
  local number digest
  number=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$SOURCE/pyproject.toml")
  digest=$(cd "$SOURCE" && find bot threads transports deploy pyproject.toml requirements{,-otel,-browser}.lock -type f ! -name '*.pyc' -print0 |
    LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-8)
  echo "$number-$digest"
}

version_now() { readlink "$opt/current"; }

program() { # ID
  local to=$opt/$1 extra pip=("$opt/$1/bin/python" -I -m pip --disable-pip-version-check --quiet install)
  [ -z "$wheels" ] || pip+=(--no-index --find-links "$wheels")
  [ -e "$to/complete" ] || environment "$to"
  for extra in $(cat "$opt/current/extras" 2> /dev/null || true) "${extras[@]}"; do
    if ! grep --silent --line-regexp "$extra" "$to/extras" 2> /dev/null; then
      do_ "${pip[@]}" --require-hashes -r "$SOURCE/requirements-$extra.lock"
      do_ note "$extra" "$to/extras"
    fi
  done
}

environment() { # FOLDER, with the `pip` of its caller
  local to=$1
  # -I: root must not load modules from the working directory.
  "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is required: --python PROGRAM"
  case "$root$("$python" -I -c 'import os, sys; print(os.path.realpath(sys.base_prefix))')" in
    /root/* | /home/*) fail "this Python is in a home folder, which the unit hides: --python /usr/bin/python3" ;;
  esac
  [ ! -e "$to" ] || do_ rm -rf "$to" # left by an interrupted run
  do_ "$python" -I -m venv "$to"
  do_ "${pip[@]}" --require-hashes -r "$SOURCE/requirements.lock"
  do_ "${pip[@]}" --no-build-isolation --no-deps "$SOURCE"
  do_ mkdir -p "$to/share/threadfast"
  do_ cp -r "$SOURCE/README.md" "$SOURCE/deploy" "$SOURCE/docs" "$to/share/threadfast/"
  do_ ln -sfn /etc/threadfast/settings.json "$to/settings.json" # the default settings of its commands
  do_ touch "$to/complete"
}

checked() { # ID
  [ -n "$dry" ] || "$opt/$1/bin/threadfast" check --settings "$etc/settings.json"
}

switch_to() { # ID
  points_to "$opt/current" "$1"
  the_unit "$opt/$1"
}

tidy() { # two versions and three snapshots are enough
  local each
  [ -z "$dry" ] || return 0 # what is too old is only known after the upgrade
  for each in "$opt"/*/complete; do
    each=$(dirname "$each")
    case "$(basename "$each")" in
      "$(version_now)" | "$(readlink "$opt/previous")" | current | previous) ;;
      *) do_ rm -rf "$each" ;;
    esac
  done
  while read -r each; do do_ rm -rf "${backups:?}/$each"; done < <(cd "$backups" && printf '%s\n' * | sort -r | tail -n +4)
}

# The service

the_user() {
  if [ -z "$root" ] && ! getent passwd $USER_NAME > /dev/null; then
    do_ useradd --system --user-group --home-dir /var/lib/threadfast --no-create-home --shell /usr/sbin/nologin $USER_NAME
  fi
}

the_unit() { # FOLDER of the program
  local from=$1/share/threadfast/deploy/threadfast.service
  [ -z "$dry" ] || [ -e "$from" ] || from=$SOURCE/deploy/threadfast.service
  if ! cmp --silent "$from" "$unit"; then
    folder "$(dirname "$unit")" 755
    do_ install -m 644 "$from" "$unit"
    ctl daemon-reload
  fi
}

the_credentials() {
  local file name lines='' drop_in=$unit.d/credentials.conf
  for file in "$etc"/credentials/*; do
    [ -f "$file" ] || continue
    name=$(basename "$file")
    case "$name" in
      *[!A-Za-z0-9._-]* | *~) echo "left out: $file (a name is letters, digits, dots, - and _)" >&2 ;;
      *) lines+="LoadCredential=$name:/etc/threadfast/credentials/$name"$'\n' ;;
    esac
  done
  if [ -n "$lines" ]; then
    lines="# Written by install.sh credentials: one line for each file of /etc/threadfast/credentials."$'\n[Service]\n'${lines%$'\n'}
    [ "$(cat "$drop_in" 2> /dev/null || true)" != "$lines" ] || return 0
    folder "$unit.d" 755
    text "$drop_in" 644 "$lines"
  else
    [ -e "$drop_in" ] || return 0
    do_ rm -f "$drop_in"
  fi
  ctl daemon-reload
}

serves() { [ -z "$dry$SYSTEMCTL" ] || "${SYSTEMCTL:-false}" is-active --quiet threadfast; }

comes_up() { # `start` returns when the unit said READY, or failed
  ctl reset-failed threadfast || true
  [ -z "$dry" ] || return 0
  timeout "$READY_S" "$SYSTEMCTL" start threadfast || return 1
  do_ sleep "$STEADY_S"
  serves && [ "$("$SYSTEMCTL" show threadfast --property=NRestarts --value)" = 0 ]
}

schema_in() { # a file of its own, and nothing that root would wait for or follow
  [ ! -f "$1/schema.json" ] || [ -L "$1/schema.json" ] || cat "$1/schema.json"
}

data_from() { # FOLDER; what is there now is kept beside
  do_ mv "$data" "$backups/aside-$(date -u +%Y%m%dT%H%M%SZ)"
  do_ cp -a --reflink=auto "$1" "$data"
}

# Each makes one change and prints it

do_() {
  changes=$((changes + 1))
  printf '%s' "${dry:+would: }" && printf '%s ' "$@" && echo
  [ -n "$dry" ] || "$@"
}

done_() { echo "${dry:+nothing was done; it would be }$*"; }

ctl() { [ -z "$SYSTEMCTL" ] || do_ "$SYSTEMCTL" "$@"; }

folder() { # PATH MODE [OWNER]
  if [ ! -d "$1" ]; then do_ install -d -m "$2" "$1"; fi
  if [ -d "$1" ] && [ "$(stat -c %a "$1")" != "$2" ] && [ -n "${3-}" ]; then do_ chmod "$2" "$1"; fi
  [ -z "${3-}" ] || owned "$1" "$3"
}

owned() { # PATH OWNER
  [ -n "$root" ] || [ "$(stat -c %U:%G "$1" 2> /dev/null || true)" = "$2" ] || do_ chown "$2" "$1"
}

points_to() { # LINK TARGET
  [ "$(readlink "$1" || true)" != "$2" ] || return 0
  do_ ln -sfn "$2" "$1.new"
  do_ mv -T "$1.new" "$1" # a rename, so the link always exists
}

text() { # FILE MODE TEXT
  do_ write "$@"
}

note() { # LINE FILE
  echo "$1" >> "$2"
}

write() {
  (umask 077 && printf '%s\n' "$3" > "$1.new")
  chmod "$2" "$1.new"
  mv "$1.new" "$1"
}

fail() {
  echo "$*" >&2
  exit 1
}

wrong() {
  echo "$*" >&2
  exit 2
}

main "$@"
