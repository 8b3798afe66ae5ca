#!/usr/bin/env bash
# Unpack CRIU from a Debian suite into a directory, with its libraries, and install nothing: `get-criu.sh DIRECTORY [SUITE]`.
# DIRECTORY/criu is then the program. For machines whose own CRIU is missing or too old for their kernel: below version 4.1.1
# it fails on kernels from 6.13 on, below 4.2.1 it cannot dump connections. About 20 MB come from the first Debian mirror that
# apt uses here, checked with this machine's keys.
set -euo pipefail
directory=${1:?a directory to unpack into} suite=${2:-forky}
fail() { echo "get-criu: $1" >&2; exit 1; }
command -v apt-get dpkg-deb >/dev/null || fail "needs apt-get and dpkg-deb"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || fail "$keys is missing: install debian-archive-keyring"
mirror=$(sed -nE 's#^(deb|URIs:).*[ =](https?://[^ ]*/debian)/?( .*)?$#\2#p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | sed -n 1p) || true
[ -n "$mirror" ] || fail "no Debian mirror in /etc/apt/sources.list*: add one"
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
work=$(mktemp -d "$directory/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,cache}/partial "$work/root" "$work/parts"
: >"$work/status"
echo "deb [signed-by=$keys] $mirror $suite main" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "$work/parts";
Dir::Etc::PreferencesParts "$work/parts";
Dir::State::Lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache::Archives "$work/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Sandbox::User "$(id -un)";
APT::Install-Recommends "false";
Acquire::Languages "none";
Debug::NoLocking "true";
END
export APT_CONFIG=$work/apt.conf
apt-get -qq update >&2 || fail "cannot read $mirror $suite"
apt-get -qq --download-only --yes install criu >&2 || fail "$mirror $suite has no criu that can be unpacked"
for package in "$work"/cache/*.deb; do
  dpkg-deb --extract "$package" "$work/root"
done
program=$(cd "$work/root" && find . -path '*/sbin/criu' | head -1)
loader=$(cd "$work/root" && find . -name 'ld-linux*' -not -type d | head -1)
[ -n "$program" ] && [ -n "$loader" ] || fail "no criu in what was unpacked"
folders=$(cd "$work/root" && find . -name 'lib*.so*' -printf '%h\n' | sort -u | sed "s|^\.|$directory/root|" | paste -sd:)
cat >"$work/criu" <<END
#!/bin/sh
exec "$directory/root/${loader#./}" --library-path "$folders" "$directory/root/${program#./}" "\$@"
END
chmod 755 "$work/criu"
rm -rf "$directory/root"
mv "$work/root" "$directory/root"
mv "$work/criu" "$directory/criu"
"$directory/criu" --version
