#!/usr/bin/env bash
# Prints the folder of programs that tests use, and are skipped without: a browser that needs no screen (chromium-headless-shell),
# prometheus and promtool. It is for the end of PATH:
#
#   programs=$(hack/debian-programs.sh); PATH=$PATH${programs:+:$programs}
#
# They are Debian's packages, with the libraries that this machine lacks, unpacked in the user's cache once. Nothing is installed, and
# it takes no root where apt knows its packages. A machine that cannot is warned about, and no failure: nothing is printed.
set -euo pipefail
base=${XDG_CACHE_HOME:-$HOME/.cache}/fleet-runtime/debian-programs
packages=(chromium-headless-shell fonts-dejavu-core fontconfig-config prometheus)
unpacked=$base/unpacked bin=$base/unpacked/bin

cannot() { echo "debian-programs: tests that need a browser or Prometheus will be SKIPPED: $*" >&2 && exit 0; }

# needed prints what is to be unpacked: the packages, and of what the browser depends on what is not installed. Prometheus is linked
# statically, and what its package depends on is for its pages.
needed() {
	local missing
	missing=$(apt-get install --simulate --no-install-recommends "${packages[@]::3}" | awk '$1 == "Inst" {print $2}') || return
	printf '%s\n' "${packages[0]}" "${packages[3]}" "$missing" | sort -u
}

# wrapped writes the program that runs the browser with what was unpacked beside it.
wrapped() {
	local into=$1 libraries
	libraries=$(cd "$into" && find usr/lib lib -name '*.so*' -printf '%h\n' 2>/dev/null | sort -u | sed "s|^|$unpacked/|" | paste -sd:)
	cat >"$into/fonts.conf" <<-CONF
		<fontconfig><dir>/usr/share/fonts</dir><dir>$unpacked/usr/share/fonts</dir><cachedir>$base/fonts</cachedir></fontconfig>
	CONF
	cat >"$into/bin/chromium-headless-shell" <<-RUN
		#!/bin/sh
		LD_LIBRARY_PATH='$libraries' FONTCONFIG_FILE='$unpacked/fonts.conf' exec '$unpacked/usr/lib/chromium/chromium-headless-shell' "\$@"
	RUN
	chmod +x "$into/bin/chromium-headless-shell"
}

# unpack makes the folder, which is there whole or not at all.
unpack() {
	local into=$base/new all deb
	rm -rf "$into" && mkdir -p "$into/debs" "$into/bin"
	[ "$(id -u)" != 0 ] || apt-cache show prometheus >/dev/null 2>&1 || timeout 120 apt-get update -qq
	all=$(needed)
	# shellcheck disable=SC2086 # one word for each package
	(cd "$into/debs" && timeout 600 apt-get download -q $all)
	for deb in "$into"/debs/*.deb; do
		dpkg -x "$deb" "$into"
	done
	wrapped "$into"
	ln -s ../usr/bin/prometheus ../usr/bin/promtool "$into/bin/"
	rm -rf "$into/debs" "$into"/usr/share/{doc,man,prometheus}
	rm -rf "$unpacked" && mv "$into" "$unpacked"
	"$bin/promtool" --version && "$bin/chromium-headless-shell" --version
}

for program in apt-get apt-cache dpkg timeout; do
	command -v $program >/dev/null || cannot "there is no $program, so this is no Debian"
done
mkdir -p "$base"
exec {lock}>"$base/.lock"
flock "$lock"
made=$(sha256sum <"${BASH_SOURCE[0]}")
if [ "$(cat "$base/.done" 2>/dev/null)" != "$made" ]; then
	rm -f "$base/.done"
	# A process of its own, since bash does not heed errors in what a condition calls.
	(unpack) >"$base/log" 2>&1 & wait $! || cannot "apt did not provide ${packages[*]}, see $base/log (as root, apt-get update may help)"
	echo "$made" >"$base/.done"
fi
echo "$bin"
