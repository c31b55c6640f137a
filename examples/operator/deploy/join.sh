#!/usr/bin/env bash
# Makes a cluster a member of the fleet: puts a kubeconfig with a token of a service account of the cluster into a labelled
# Secret of the hub. Run it again for a new token before the old one ends; the member takes it over in place.
#
#   join.sh [-w] [-a ACCOUNT] [-l LABEL=VALUE] [-s SERVER] [-d DURATION] [-n NAMESPACE] NAME HUB MEMBER
#
# NAME is what the fleet calls the cluster. HUB and MEMBER are contexts of your kubeconfig. The account, NAMESPACE/NAME, must be
# there, with the rights that the operator needs: see member.yaml. SERVER is the address at which the hub reaches the member,
# where that is another one than yours. NAMESPACE is that of the Secret. With -w, each time that you run it, the member leaves well
# when the Secret is deleted. The Secret stays until then: the operator has to run, with the right to patch Secrets.
set -euo pipefail
account=fleet/operator label='' server='' duration=24h namespace=fleet finalizers=''
while getopts wa:l:s:d:n: flag; do
	case $flag in
	w) finalizers='finalizers: [fleet-runtime.dev/leave]' ;;
	a) account=$OPTARG ;;
	l) label=$OPTARG ;;
	s) server=$OPTARG ;;
	d) duration=$OPTARG ;;
	n) namespace=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# = 3 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
name=$1 hub=$2 member=$3
[ -z "$label" ] || label="${label%%=*}: '${label#*=}'"

field() { kubectl config view --context "$member" --minify --flatten --raw -o "jsonpath={.clusters[0].cluster.$1}"; }
token=$(kubectl --context "$member" --namespace "${account%/*}" create token "${account#*/}" --duration "$duration")
kubectl --context "$hub" apply --server-side --field-manager fleet-join -f - <<YAML
apiVersion: v1
kind: Secret
metadata:
  namespace: $namespace
  name: $name
  labels:
    fleet-runtime.dev/kubeconfig: "true"
    $label
  $finalizers
stringData:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    current-context: $name
    contexts: [{name: $name, context: {cluster: $name, user: fleet}}]
    clusters: [{name: $name, cluster: {server: "${server:-$(field server)}", certificate-authority-data: "$(field certificate-authority-data)"}}]
    users: [{name: fleet, user: {token: "$token"}}]
YAML
