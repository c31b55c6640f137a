#!/bin/bash
# Runs a command with a working "podman" in PATH and an image of kind nodes, KIND_NODE_IMAGE, on a Debian machine where no
# container registry can be reached, as root:
#
#   hack/kind-without-registry.sh COMMAND...
#
# All is made of Debian's packages and Go modules, and is kept in one folder of the user's cache. Nothing is installed. The
# clusters, and the command, are in a network of their own, without a way out: only what the command puts after $KIND_OUTSIDE has
# one. At the end no process and no network is left, also if this script was killed: what it holds ends with it, and so
# does the command. On a machine that cannot do this, it says so and exits with 77.
set -euo pipefail
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
base=${XDG_CACHE_HOME:-$HOME/.cache}/fleet-runtime/kind
root=$base/debian bin=$base/bin node=$base/node
packages=ca-certificates,podman,runc,conmon,netavark,aardvark-dns,iptables,nftables,iproute2,procps,systemd,systemd-sysv,dbus,kmod,conntrack,ebtables,ethtool,socat,jq,mount

cannot() { echo "kind: this machine cannot run kind's nodes: $*" >&2 && exit 77; }
possible() {
	local program cgroups=/sys/fs/cgroup probe
	[ "$(id -u)" = 0 ] || cannot "it takes root, or Docker, nerdctl, finch or Podman"
	for program in apt-get dpkg; do
		command -v $program >/dev/null || cannot "there is no $program, so it is no Debian, and has neither Docker, nerdctl, finch nor Podman"
	done
	for program in chroot nsenter pgrep sha256sum tar unshare; do
		command -v $program >/dev/null || cannot "there is no $program"
	done
	unshare -m -n -p -f true || cannot "it allows no namespaces"
	[ ! -d $cgroups/memory ] || cgroups+=/memory
	probe=$(mktemp -d $cgroups/fleet-XXXXXX) && rmdir "$probe" || cannot "no cgroup can be made in $cgroups"
}
# room says so if the disk has no room for what is about to be made, in GB.
room() {
	local free
	free=$(($(df --output=avail -k "$base" | tail -1) >> 20))
	[ "$free" -ge "$1" ] || { echo "kind: $base needs $1 GB more, and the disk has $free" >&2 && exit 1; }
}

possible
mkdir -p "$base"
exec {lock}>"$base/.lock"
flock -n "$lock" || { echo "kind: another run uses $base; waiting for it" >&2 && flock "$lock"; }

cd "$repo"
go list -deps -test ./... >/dev/null # the command cannot download modules
kind=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
assets=$(make -s assets)
version=$(sed -n 's/^require k8s.io\/kubernetes \(v[^ ]*\).*/\1/p' hack/assets/controlplane.mod)

# digest prints one of what is given, and of what programs are made of.
digest() {
	{ go version && echo "$kind $*" && cat hack/kind-without-registry.sh hack/assets/controlplane.{mod,sum} hack/release/go.{mod,sum} hack/release/{container,image}/*.go hack/node/go.{mod,sum} hack/node/*/*.go; } |
		sha256sum | cut -c1-16
}

# debian makes the Debian in which podman runs, and of which nodes are made.
debian() {
	local debootstrap=$base/debootstrap codename mirror
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	[ "$(cat "$root/.done" 2>/dev/null)" != "$codename $packages" ] || return 0
	room 5
	echo "kind: making a Debian with podman, in about two minutes" >&2
	rm -rf "$root" "$debootstrap" && mkdir -p "$debootstrap"
	mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' | awk -v c="$codename" '$1 == c && $2 == "main" {print $3; exit}')
	[ -n "$mirror" ] || { echo "kind: apt knows no mirror of $codename: run apt-get update" >&2 && exit 1; }
	(cd "$debootstrap" && apt-get download -q debootstrap && dpkg -x debootstrap_*.deb .)
	# What it mounts is gone with it, also if it is killed.
	DEBOOTSTRAP_DIR=$debootstrap/usr/share/debootstrap unshare -m --propagation private "$debootstrap/usr/sbin/debootstrap" --variant=minbase --include="$packages" "$codename" "$root" "$mirror"
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/{doc,man,locale} "$debootstrap"
	mkdir -p "$root/old" "$root/lib/modules"
	echo "$codename $packages" >"$root/.done"
}

# configure tells podman what it does otherwise than by default: crun knows no cgroups of both versions at once, and without
# CAP_SYS_RESOURCE podman's limits cannot be set. Nodes are killed when they are deleted, as Docker kills them.
configure() {
	mkdir -p "$root/etc/containers"
	cat >"$root/etc/containers/containers.conf" <<-CONF
		[containers]
		default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
		[engine]
		runtime = "runc"
		cgroup_manager = "cgroupfs"
		stop_timeout = 0
	CONF
}

# programs builds the programs of a node.
programs() {
	local v=k8s.io/component-base/version work=$base/kubernetes
	local -x CGO_ENABLED=0 GOWORK=off GOFLAGS=-buildvcs=false # as the control plane's, with which they have most packages in common
	echo "kind: compiling kubelet, kube-proxy, containerd, CoreDNS and what else a node runs; with cold caches this takes about seven minutes on two cores" >&2
	mkdir -p "$work" "$bin" && cp hack/assets/controlplane.mod "$work/go.mod" && cp hack/assets/controlplane.sum "$work/go.sum"
	go build -C "$work" -o "$bin/" \
		-ldflags "-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$(cut -d. -f2 <<<"$version")" \
		k8s.io/kubernetes/cmd/{kubeadm,kubelet,kube-proxy,kube-scheduler}
	go build -C hack/node -ldflags "-s -w" -o "$bin/" ./coredns ./pause \
		github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr} \
		github.com/containernetworking/plugins/plugins/{ipam/host-local,main/loopback,main/ptp,meta/portmap}
	go build -C hack/release -o "$bin/" ./image
}

# node makes the file system of a node: kind's own files, the programs, and the images of the control plane.
node() {
	echo "kind: making the node image, in about a minute" >&2
	rm -rf "$node" && mkdir "$node"
	tar -C "$root" --exclude=./{proc,sys,dev,run,tmp}/'*' --exclude=./var/lib/containers --exclude=./var/cache --exclude=./var/lib/apt \
		--exclude=./etc/containers --exclude=./etc/cni -c . | tar -C "$node" -x
	cp -r --no-preserve=mode "$kind/images/base/files/." "$node/"
	chmod +x "$node"/usr/local/bin/* "$node"/kind/bin/*
	echo "$version" >"$node/kind/version"
	cp "$bin"/{kubeadm,kubelet} "$assets/kubectl" "$node/usr/bin/"
	cp "$bin"/{containerd,containerd-shim-runc-v2,ctr} "$node/usr/local/bin/"
	mkdir -p "$node/opt/cni/bin" && cp "$bin"/{host-local,loopback,ptp,portmap} "$node/opt/cni/bin/"
	units
	pods
	images
}

# units says what systemd runs in a node, as kind's Dockerfile does.
units() {
	local units=$node/etc/systemd/system unit
	rm -f "$node"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$node"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* "$units"/*.wants/*
	mkdir -p "$units/multi-user.target.wants" "$node/etc/kubernetes/manifests" "$node/etc/kubelet.conf.d"
	for unit in kubelet containerd undo-mount-hacks; do ln -sf /etc/systemd/system/$unit.service "$units/multi-user.target.wants/"; done
	ln -sf /dev/null "$units/systemd-binfmt.service"
	ln -sf /usr/lib/systemd/systemd "$node/usr/sbin/init"
	printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n' >"$node/etc/kubelet.conf.d/10-cgroup.conf"
	sed -i 's#^KUBELET_EXTRA_ARGS=.*#& --config-dir=/etc/kubelet.conf.d#' "$node/etc/default/kubelet"
}

# pods gives the pods of a node their network. containerd makes the configuration, with the addresses that the node got. Nodes
# know no ways to each other's pods: clusters have one node.
pods() {
	cat >"$node/etc/containerd/cni.template" <<-'JSON'
		{"cniVersion": "0.3.1", "name": "kind", "plugins": [
		  {"type": "ptp", "ipMasq": true, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state",
		    "ranges": [[{"subnet": "{{.PodCIDR}}"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	JSON
	"$bin/ctr" oci spec >"$node/etc/containerd/cri-base.json"
	sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$node/etc/containerd/config.toml"
	cat >>"$node/etc/containerd/config.toml" <<-'TOML'
		[plugins."io.containerd.grpc.v1.cri".cni]
		  conf_template = "/etc/containerd/cni.template"
	TOML
	mkdir -p "$node/kind/manifests"
	for m in default-cni default-storage; do # kind applies both; there is no storage
		printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\n' $m >"$node/kind/manifests/$m.yaml"
	done
}

# images unpacks the images that a node needs where its containerd has them: at its start there is none to wait for.
images() {
	local archives=$base/images name
	rm -rf "$archives" && mkdir "$archives"
	for name in kube-apiserver kube-controller-manager etcd; do image "$assets/$name"; done
	for name in kube-scheduler coredns pause; do image "$bin/$name"; done
	image "$bin/kube-proxy" --files "$(netfilter)"
	sed -i "s#sandbox_image = .*#sandbox_image = \"$(tag pause)\"#" "$node/etc/containerd/config.toml"
	unshare -m -p -f --kill-child --propagation private bash -euo pipefail -c '
		mount -t tmpfs tmpfs /run && cd /run && mkdir -p "$2/var/lib/containerd"
		echo "disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"]" >config.toml
		"$1/containerd" --config config.toml --root "$2/var/lib/containerd" --log-level error & daemon=$!
		until [ -S containerd/containerd.sock ]; do kill -0 $daemon; done
		for archive in "$3"/*.tar; do "$1/ctr" --connect-timeout 60s -n k8s.io images import --local --discard-unpacked-layers "$archive" >/dev/null; done
		"$1/ctr" -n k8s.io leases create --id swept >/dev/null && "$1/ctr" -n k8s.io leases delete --sync swept >/dev/null # with the packed layers
		kill $daemon && wait $daemon' - "$bin" "$node" "$archives" 2> >(grep -v DEPRECATION >&2)
}
image() { # program, more flags
	"$bin/image" --user 0 --tag "$(tag "$(basename "$1")")" "${@:2}" --output "$archives/$(basename "$1").tar" "$(realpath "$1")"
}
tag() { "$bin/kubeadm" config images list --kubernetes-version "$version" 2>/dev/null | grep "/$1:"; }

# netfilter makes a folder of what kube-proxy runs, and prints its name.
netfilter() {
	local folder=$base/netfilter programs=(usr/sbin/xtables-nft-multi usr/sbin/nft) name suffix
	rm -rf "$folder" && mkdir -p "$folder"
	chroot "$root" sh -c 'cd / && tar -ch "$@" usr/lib/*/xtables $(for p in "$@" usr/lib/*/xtables/*.so; do ldd "/$p" | grep -o "/[^ ]*"; done | sort -u) 2>/dev/null' - "${programs[@]}" |
		tar -C "$folder" -x
	for name in iptables ip6tables; do
		for suffix in "" -save -restore; do ln -s xtables-nft-multi "$folder/usr/sbin/$name$suffix"; done
	done
	echo "$folder"
}

# hold keeps a place for podman, until this script ends: namespaces of mounts, of processes and of the network. The root is the
# Debian, as runc needs it, so chroot would not do.
hold() {
	exec {alive}> >(exec unshare -m -n -p -f --propagation private bash -euo pipefail -c '
		mount --bind "$1" "$1" && cd "$1"
		mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && mount -t tmpfs tmpfs dev/shm && mount -t tmpfs tmpfs run
		ip link set lo up
		pivot_root . old && cd / && umount -l /old
		touch /run/.held
		while read -r _; do :; done' - "$root" {lock}>&-)
	local outer=$!
	until holder=$(pgrep -P "$outer") && inside test -e /run/.held 2>/dev/null; do kill -0 "$outer"; done
}
inside() { PATH=/usr/sbin:/usr/bin:/sbin:/bin nsenter -m -n -p -r -w -t "$holder" "$@"; }

# empty removes the containers, and their volumes.
empty() {
	local said
	said=$(inside podman rm -afv -t 0 2>&1 && inside podman volume rm -af 2>&1) || { echo "kind: removing containers: $said" >&2 && return 1; }
}

cleanup() {
	set +e
	[ -z "${holder:-}" ] || empty
	[ -z "${alive:-}" ] || exec {alive}>&- # ends the holder, and with it whatever runs there
	rm -rf "$node" "$base/netfilter" "$base/images"
	find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null
}

debian
configure
image=localhost/kind-node:$version-$(digest "$packages")
trap cleanup EXIT
hold
empty # of a run that was killed
if ! inside podman image exists "$image"; then
	room 5
	programs
	node
	inside podman rmi -af >/dev/null
	tar -C "$node" -c . | inside podman import -q --change 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]' --change 'ENV container=docker' \
		--change 'STOPSIGNAL SIGRTMIN+3' - "$image" >/dev/null
	rm -rf "$node"
fi

mkdir -p "$base/hostbin"
cat >"$base/hostbin/podman" <<-SH
	#!/bin/sh
	PATH=/usr/sbin:/usr/bin:/sbin:/bin exec nsenter -m -n -p -r -w -t $holder /usr/bin/podman "\$@"
SH
for engine in docker nerdctl finch; do # they come before podman for kind, and do not work
	printf '#!/bin/sh\nexit 1\n' >"$base/hostbin/$engine"
done
chmod +x "$base"/hostbin/*
# Its processes are among those that end with the holder.
nsenter -n -p -t "$holder" env PATH="$base/hostbin:$PATH" KIND_NODE_IMAGE="$image" KIND_OUTSIDE="nsenter --target $$ --net" "$@" {alive}>&- {lock}>&-
