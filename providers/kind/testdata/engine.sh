#!/bin/sh
# This stands in for the program of a container engine: for as much of it as kind's library runs to find clusters.
# In the folder $ENGINE_STATE each folder is a cluster. It has the kubeconfig of its only node, admin.conf, and the port of
# this machine that leads to it, port. If it has a file cut, reading the kubeconfig fails at the end. If a file .down is there,
# the engine fails, and says so in a file .noticed.
program=${0##*/}
state=$ENGINE_STATE

echo "$program $*" >>"$state/.calls"
case "$program $*" in
"docker -v") echo "Docker version 28.2.2, build e6534b4" && exit ;;
"podman -v" | "podman --version") echo "podman version 5.4.2" && exit ;;
"nerdctl -v" | "finch -v") echo "$program version 2.1.2" && exit ;;
esac
if [ -e "$state/.down" ]; then
	: >"$state/.noticed"
	echo "Cannot connect to the daemon of $program." >&2
	exit 1
fi

case "$*" in
"ps -a --filter label=io.x-k8s.kind.cluster="*)
	cluster=${4#label=io.x-k8s.kind.cluster=}
	[ ! -d "$state/$cluster" ] || echo "$cluster-control-plane"
	;;
"ps -a --filter label=io.x-k8s.kind.cluster "*)
	for folder in "$state"/*/; do
		folder=${folder%/}
		[ ! -d "$folder" ] || echo "${folder##*/}"
	done
	;;
"inspect --format "*io.x-k8s.kind.role*)
	echo control-plane
	;;
"inspect --format "*desktop.docker.io*)
	echo
	;;
"inspect --format {{ json .NetworkSettings.Ports }} "*) # podman
	read -r port <"$state/${4%-control-plane}/port"
	echo "{\"6443/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"$port\"}]}"
	;;
"inspect --format "*.NetworkSettings.Ports*)
	read -r port <"$state/${4%-control-plane}/port"
	printf '127.0.0.1\t%s\n' "$port"
	;;
"exec --privileged "*" cat /etc/kubernetes/admin.conf")
	/bin/cat "$state/${3%-control-plane}/admin.conf" && [ ! -e "$state/${3%-control-plane}/cut" ]
	;;
*)
	echo "$program: this is not known: $*" >&2
	exit 1
	;;
esac
