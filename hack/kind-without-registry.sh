#!/bin/bash
# Runs a command with a working "podman" in PATH and an image of kind nodes, KIND_NODE_IMAGE, on a Debian machine where no
# container registry can be reached, as root. All is made of Debian's packages and Go modules, in one folder, and nothing
# is installed. At the end no process, network or firewall rule is left.
#
#   kind-without-registry.sh FOLDER REPOSITORY COMMAND...
#
# REPOSITORY is that of fleet-runtime: its go.mod has kind, and its control plane's programs go into the image.
set -euo pipefail
base=$(realpath -m "$1") repo=$(realpath "$2") && shift 2
mkdir -p "$base/bin" "$base/node" "$base/hostbin"
kind=$(cd "$repo" && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
assets=$(cd "$repo" && make -s assets)
version=v$(basename "$assets" | sed 's/^v//; s/-.*//')

# 1. A Debian with podman, systemd and runc. It is where podman runs, and what nodes are made of.
if [ ! -e "$base/rootfs/.done" ]; then
	(cd "$base" && apt-get download -q debootstrap && dpkg -x debootstrap_*.deb debootstrap)
	DEBOOTSTRAP_DIR=$base/debootstrap/usr/share/debootstrap "$base/debootstrap/usr/sbin/debootstrap" --variant=minbase \
		--include=ca-certificates,podman,runc,conmon,netavark,aardvark-dns,iptables,iproute2,procps,systemd,systemd-sysv,dbus,kmod,conntrack,ebtables,ethtool,socat,jq,mount \
		bookworm "$base/rootfs" http://deb.debian.org/debian
	mkdir -p "$base/rootfs/old" "$base/rootfs/lib/modules" "$base/rootfs/etc/containers"
	touch "$base/rootfs/.done"
fi
# crun knows no cgroups of both versions at once, and without CAP_SYS_RESOURCE podman's limits cannot be set.
cat >"$base/rootfs/etc/containers/containers.conf" <<-CONF
	[containers]
	default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
	[engine]
	runtime = "runc"
	cgroup_manager = "cgroupfs"
CONF

# 2. The programs of a node.
build() { # module, version, flags of the linker, packages...
	local module=$1 at=$2 flags=$3 && shift 3
	local dir=$base/src/$(basename "$(dirname "$module/x")")
	mkdir -p "$dir" && cd "$dir"
	if [ ! -e go.mod ]; then
		if [ "$module" = k8s.io/kubernetes ]; then
			cp "$repo/hack/assets/controlplane.mod" go.mod && cp "$repo/hack/assets/controlplane.sum" go.sum
		else
			go mod init x && go get "$module@$at"
		fi
		{ echo "//go:build tools" && echo "package t" && printf 'import _ "%s"\n' "$@"; } >t.go
	fi
	GOFLAGS=-mod=mod CGO_ENABLED=0 go build -ldflags "-s -w $flags" -o "$base/bin/" "$@"
	cd - >/dev/null
}
v=k8s.io/component-base/version
build k8s.io/kubernetes "$version" "-X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$(cut -d. -f2 <<<"$version")" \
	k8s.io/kubernetes/cmd/{kubeadm,kubelet,kube-scheduler}
build github.com/containerd/containerd/v2 v2.2.0 "" github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
mkdir -p "$base/src/pause" && cat >"$base/src/pause/main.go" <<-'GO'
	package main

	import (
		"os"
		"os/signal"
		"syscall"
	)

	func main() {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
		<-end
	}
GO
(cd "$base/src/pause" && CGO_ENABLED=0 go build -ldflags "-s -w" -o "$base/bin/pause" main.go)

# 3. The image of a node: kind's own files, the programs, and the images of the control plane.
node=$base/node
tar -C "$base/rootfs" --exclude=./{proc,sys,dev,run,tmp}/'*' --exclude=./var/lib/containers --exclude=./var/cache/apt/archives/'*' --exclude=./etc/containers -c . | tar -C "$node" -x
cp -r "$kind/images/base/files/." "$node/"
chmod -R u+w "$node/kind" "$node/usr/local/bin" "$node/etc/containerd" "$node/etc/systemd" "$node/etc/default"
chmod +x "$node"/usr/local/bin/* "$node"/kind/bin/*
echo "$version" >"$node/kind/version"
units=$node/etc/systemd/system
rm -f "$node"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$node"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* "$units"/*.wants/*
mkdir -p "$units/multi-user.target.wants"
for unit in kubelet containerd undo-mount-hacks; do ln -sf /etc/systemd/system/$unit.service "$units/multi-user.target.wants/"; done
ln -sf /dev/null "$units/systemd-binfmt.service"
ln -sf /usr/lib/systemd/systemd "$node/usr/sbin/init"
cp "$base"/bin/{kubeadm,kubelet} "$assets/kubectl" "$node/usr/bin/"
cp "$base"/bin/{containerd,containerd-shim-runc-v2,ctr} "$node/usr/local/bin/"
"$base/bin/ctr" oci spec >"$node/etc/containerd/cri-base.json"
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$node/etc/containerd/config.toml"
sed -i 's#^ExecStart=.*#ExecStart=/usr/local/bin/containerd\nExecStartPost=/bin/sh -c "for f in /kind/images/*.tar; do /usr/local/bin/ctr -n k8s.io images import $f; done"#' "$units/containerd.service"
# No network between pods, and no storage: what is asked of the cluster is its API server.
mkdir -p "$node"/kind/{manifests,images} "$node/etc/kubelet.conf.d"
for m in default-cni default-storage; do
	printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\n' $m >"$node/kind/manifests/$m.yaml"
done
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n' >"$node/etc/kubelet.conf.d/10-cgroup.conf"
sed -i 's#^KUBELET_EXTRA_ARGS=.*#& --config-dir=/etc/kubelet.conf.d#' "$node/etc/default/kubelet"
image() { # name, file, tags...
	local name=$1 file=$2 layer=$base/src/layer && shift 2
	rm -rf "$layer" && mkdir -p "$layer/usr/local/bin" "$layer/tmp" && cp "$file" "$layer/usr/local/bin/$name"
	python3 - "$layer" "$name" "$node/kind/images/$name.tar" "$@" <<-'PY'
		import hashlib, io, json, sys, tarfile
		folder, name, out, *tags = sys.argv[1:]
		buffer = io.BytesIO()
		with tarfile.open(fileobj=buffer, mode="w") as t:
		    t.add(folder, arcname=".")
		layer = buffer.getvalue()
		digest = hashlib.sha256(layer).hexdigest()
		config = json.dumps({"architecture": "amd64", "os": "linux",
		    "config": {"Env": ["PATH=/usr/local/bin"], "Entrypoint": ["/usr/local/bin/" + name]},
		    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]}}).encode()
		manifest = json.dumps([{"Config": "config.json", "RepoTags": tags, "Layers": ["layer.tar"]}]).encode()
		with tarfile.open(out, "w") as t:
		    for n, content in (("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
		        info = tarfile.TarInfo(n)
		        info.size = len(content)
		        t.addfile(info, io.BytesIO(content))
	PY
}
tag() { "$base/bin/kubeadm" config images list --kubernetes-version "$version" 2>/dev/null | grep "/$1:"; }
for name in kube-apiserver kube-controller-manager etcd; do image $name "$assets/$name" "$(tag $name)"; done
image kube-scheduler "$base/bin/kube-scheduler" "$(tag kube-scheduler)"
image pause "$base/bin/pause" "$(tag pause)" "$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$node/etc/containerd/config.toml")"
tar -C "$node" -cf "$base/rootfs/node.tar" .

# 4. A place for podman: a mount namespace whose root is the Debian, as runc needs it, so chroot would not do.
unshare -m --propagation private bash -c '
	mount --bind "$1" "$1" && cd "$1"
	mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev && mount -t tmpfs tmpfs run
	pivot_root . old && cd / && umount -l /old
	exec sleep infinity' - "$base/rootfs" &
holder=$!
cat >"$base/hostbin/podman" <<-SH
	#!/bin/sh
	PATH=/usr/sbin:/usr/bin:/sbin:/bin exec /usr/bin/nsenter -m -r -w -t $holder /usr/bin/podman "\$@"
SH
chmod +x "$base/hostbin/podman"
inside() { PATH=/usr/sbin:/usr/bin:/sbin:/bin nsenter -m -r -w -t "$holder" "$@"; }
cleanup() {
	set +e
	inside podman rm -afv -t 0 >/dev/null 2>&1
	inside podman network rm kind >/dev/null 2>&1
	for tables in iptables-nft ip6tables-nft; do # netavark leaves its chains
		for table in filter nat; do
			inside $tables-save -t $table | sed -n 's/^-A\(.*NETAVARK.*\)/-D\1/p' | while read -r rule; do eval "inside $tables -t $table $rule"; done
			inside $tables-save -t $table | sed -n 's/^:\(NETAVARK[^ ]*\).*/\1/p' | while read -r chain; do inside $tables -t $table -F "$chain"; done
			inside $tables-save -t $table | sed -n 's/^:\(NETAVARK[^ ]*\).*/\1/p' | while read -r chain; do inside $tables -t $table -X "$chain"; done
		done
	done
	kill "$holder"
	wait "$holder" 2>/dev/null
	find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null
}
trap cleanup EXIT
until inside test -e /node.tar && ! inside test -e /old/proc; do :; done
inside podman rmi -af >/dev/null
inside podman import --change 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]' --change 'ENV container=docker' \
	--change 'STOPSIGNAL SIGRTMIN+3' /node.tar "localhost/kind-node:$version" >/dev/null

# docker comes before podman for kind, so its program must not be found.
path=$(tr : '\n' <<<"$PATH" | while read -r folder; do [ -x "$folder/docker" ] || printf '%s:' "$folder"; done)
PATH=$base/hostbin:${path%:} KIND_NODE_IMAGE=localhost/kind-node:$version "$@"
