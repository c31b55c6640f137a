#!/bin/bash
# Runs a command with a working "podman" in PATH and an image of kind nodes, KIND_NODE_IMAGE, on a Debian machine where no
# container registry can be reached, as root:
#
#   hack/kind-without-registry.sh COMMAND...
#
# All is made of Debian's packages and Go modules, and is kept in one folder of the user's cache. Nothing is installed. The
# clusters, and the command, are in a network of their own, without a way out. At the end no process and no network is left,
# also if this script was killed: what it holds ends with it.
set -euo pipefail
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
base=${XDG_CACHE_HOME:-$HOME/.cache}/fleet-runtime/kind
root=$base/debian bin=$base/bin node=$base/node
packages=ca-certificates,podman,runc,conmon,netavark,aardvark-dns,iptables,nftables,iproute2,procps,systemd,systemd-sysv,dbus,kmod,conntrack,ebtables,ethtool,socat,jq,mount
mkdir -p "$base" "$bin"
exec {lock}>"$base/.lock"
flock -n "$lock" || { echo "kind: another run uses $base; waiting for it" >&2 && flock "$lock"; }

cd "$repo"
go list -deps -test ./... >/dev/null # the command cannot download modules
kind=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
assets=$(make -s assets)
version=$(sed -n 's/^require k8s.io\/kubernetes \(v[^ ]*\).*/\1/p' hack/assets/controlplane.mod)

# digest prints one of what is given, and of what programs are made of.
digest() {
	{ go version && echo "$kind $*" && cat hack/kind-without-registry.sh hack/assets/controlplane.{mod,sum} hack/image/*.go hack/node/go.{mod,sum} hack/node/*/*.go; } |
		sha256sum | cut -c1-16
}

# debian makes the Debian in which podman runs, and of which nodes are made.
debian() {
	[ "$(cat "$root/.done" 2>/dev/null)" != "$packages" ] || return 0
	local debootstrap=$base/debootstrap codename mirror
	rm -rf "$root" "$debootstrap" && mkdir -p "$debootstrap"
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' | awk -v c="$codename" '$1 == c && $2 == "main" {print $3; exit}')
	(cd "$debootstrap" && apt-get download -q debootstrap && dpkg -x debootstrap_*.deb .)
	DEBOOTSTRAP_DIR=$debootstrap/usr/share/debootstrap "$debootstrap/usr/sbin/debootstrap" --variant=minbase --include="$packages" "$codename" "$root" "$mirror"
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/{doc,man,locale} "$debootstrap"
	mkdir -p "$root/old" "$root/lib/modules" "$root/etc/containers"
	# crun knows no cgroups of both versions at once, and without CAP_SYS_RESOURCE podman's limits cannot be set.
	cat >"$root/etc/containers/containers.conf" <<-CONF
		[containers]
		default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
		[engine]
		runtime = "runc"
		cgroup_manager = "cgroupfs"
	CONF
	echo "$packages" >"$root/.done"
}

# programs builds the programs of a node.
programs() {
	local v=k8s.io/component-base/version work=$base/kubernetes
	mkdir -p "$work" && cp hack/assets/controlplane.mod "$work/go.mod" && cp hack/assets/controlplane.sum "$work/go.sum"
	export CGO_ENABLED=0
	go build -C "$work" -o "$bin/" \
		-ldflags "-s -w -X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$(cut -d. -f2 <<<"$version")" \
		k8s.io/kubernetes/cmd/{kubeadm,kubelet,kube-proxy,kube-scheduler}
	go build -C hack/node -ldflags "-s -w" -o "$bin/" ./coredns ./pause \
		github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr} \
		github.com/containernetworking/plugins/plugins/{ipam/host-local,main/loopback,main/ptp,meta/portmap}
	go build -o "$bin/" ./hack/image
	unset CGO_ENABLED
}

# node makes the file system of a node: kind's own files, the programs, and the images of the control plane.
node() {
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
	sed -i 's#^ExecStart=.*#ExecStart=/usr/local/bin/containerd\nExecStartPost=/bin/sh -c "for f in /kind/images/*.tar; do /usr/local/bin/ctr -n k8s.io images import $f; done"#' \
		"$units/containerd.service"
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

# images puts the images that a node needs where it imports them from.
images() {
	mkdir -p "$node/kind/images"
	local name
	for name in kube-apiserver kube-controller-manager etcd; do image "$assets/$name"; done
	for name in kube-scheduler coredns; do image "$bin/$name"; done
	image "$bin/pause" --tag "$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$node/etc/containerd/config.toml")"
	image "$bin/kube-proxy" --files "$(netfilter)"
}
image() { # program, more flags
	local name tag
	name=$(basename "$1")
	tag=$("$bin/kubeadm" config images list --kubernetes-version "$version" 2>/dev/null | grep "/$name:")
	"$bin/image" --user 0 --tag "$tag" "${@:2}" --output "$node/kind/images/$name.tar" "$(realpath "$1")"
}

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
	exec {alive}> >(exec unshare -m -n -p -f --propagation private bash -c '
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
empty() { inside podman rm -afv -t 0 >/dev/null 2>&1 && inside podman volume rm -af >/dev/null; }

cleanup() {
	set +e
	[ -z "${holder:-}" ] || empty
	exec {alive}>&- # ends the holder, and with it whatever runs there
	find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null
}

debian
image=localhost/kind-node:$version-$(digest "$packages")
trap cleanup EXIT
hold
empty # of a run that was killed
if ! inside podman image exists "$image"; then
	programs
	node
	inside podman rmi -af >/dev/null
	tar -C "$node" -c . | inside podman import --change 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]' --change 'ENV container=docker' \
		--change 'STOPSIGNAL SIGRTMIN+3' - "$image" >/dev/null
	rm -rf "$node" "$base/netfilter"
fi

mkdir -p "$base/hostbin"
cat >"$base/hostbin/podman" <<-SH
	#!/bin/sh
	PATH=/usr/sbin:/usr/bin:/sbin:/bin exec nsenter -m -n -p -r -w -t $holder /usr/bin/podman "\$@"
SH
chmod +x "$base/hostbin/podman"
# docker comes before podman for kind, so its program must not be found.
path=$(tr : '\n' <<<"$PATH" | while read -r folder; do [ -x "$folder/docker" ] || printf '%s:' "$folder"; done)
nsenter -n -t "$holder" env PATH="$base/hostbin:${path%:}" KIND_NODE_IMAGE="$image" "$@" {alive}>&- {lock}>&-
