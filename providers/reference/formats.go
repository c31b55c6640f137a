package reference

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// Flux is the format of the Kustomizations and HelmReleases that Flux applies to other clusters, by spec.kubeConfig.secretRef
// (https://fluxcd.io/flux/components/kustomize/kustomizations/#remote-clusters). Those for one cluster name the same Secret,
// so each Secret is a member, as long as one of them names it. A key other than "value" is the end of the member's name.
// Objects for the local cluster, and those with spec.kubeConfig.configMapRef, are no members.
//
// Take a kind out of Kinds if its controller is not installed: the provider would wait for it, and say so in the log.
func Flux() Format {
	return Format{
		Kinds: []schema.GroupKind{
			{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"},
			{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"},
		},
		PerSecret: true,
		Read:      readFlux,
	}
}

func readFlux(obj *unstructured.Unstructured) (Reference, error) {
	r := reader{content: obj.Object}
	ref := Reference{
		Secret: client.ObjectKey{Name: r.text("spec.kubeConfig.secretRef.name")},
		Keys:   []string{"value", "value.yaml"},
	}
	if key := r.text("spec.kubeConfig.secretRef.key"); key != "" && key != ref.Keys[0] {
		ref.Keys, ref.Part = []string{key}, key
	}
	return ref, r.err
}

// Karmada is the format of the Clusters of Karmada, in its own API server: the object has the address, and its Secret the
// token (https://karmada.io/docs/reference/karmada-api/cluster-resources/cluster-v1alpha1/). namespace is where Karmada keeps
// the Secrets: karmada-cluster, unless it was told otherwise. Clusters in Pull mode are reached by the same Secret if they
// have one.
func Karmada(namespace string) Format {
	return Format{
		Kinds:            []schema.GroupKind{{Group: "cluster.karmada.io", Kind: "Cluster"}},
		ClusterScoped:    true,
		SecretNamespaces: []string{namespace},
		Read:             readKarmada,
	}
}

func readKarmada(obj *unstructured.Unstructured) (Reference, error) {
	r := reader{content: obj.Object}
	ref := Reference{
		Secret: client.ObjectKey{Namespace: r.text("spec.secretRef.namespace"), Name: r.text("spec.secretRef.name")},
		Cluster: &Cluster{
			Server:                r.text("spec.apiEndpoint"),
			ProxyURL:              r.text("spec.proxyURL"),
			InsecureSkipTLSVerify: r.yes("spec.insecureSkipTLSVerification"),
			TokenKey:              "token",
			CAKey:                 "caBundle",
		},
	}
	switch {
	case r.err != nil:
		return Reference{}, r.err
	case ref.Secret.Name == "":
		return Reference{}, objects.Waiting(ReasonNoSecret, "the Cluster has no spec.secretRef")
	case r.has("spec.proxyHeader"):
		return Reference{}, invalid("the Cluster has a spec.proxyHeader, which is not supported")
	}
	return ref, nil
}

// Kueue is the format of the MultiKueueClusters of Kueue
// (https://kueue.sigs.k8s.io/docs/tasks/manage/setup_multikueue/). namespace is where Kueue runs, and takes Secrets from:
// kueue-system, unless it was installed elsewhere. Those whose kubeconfig is a file of Kueue's are Pending, as are those with
// a ClusterProfile, for which there is package clusterprofile.
func Kueue(namespace string) Format {
	return Format{
		Kinds:            []schema.GroupKind{{Group: "kueue.x-k8s.io", Kind: "MultiKueueCluster"}},
		ClusterScoped:    true,
		SecretNamespaces: []string{namespace},
		Read: func(obj *unstructured.Unstructured) (Reference, error) {
			ref, err := readKueue(obj)
			ref.Secret.Namespace = namespace
			return ref, err
		},
	}
}

func readKueue(obj *unstructured.Unstructured) (Reference, error) {
	r := reader{content: obj.Object}
	at := "spec.clusterSource." // from v1beta2 on
	if !r.has("spec.clusterSource") {
		at = "spec."
	}
	ref := Reference{Secret: client.ObjectKey{Name: r.text(at + "kubeConfig.location")}, Keys: []string{"kubeconfig"}}
	kind := r.text(at + "kubeConfig.locationType")
	switch {
	case r.err != nil:
		return Reference{}, r.err
	case r.has(at+"clusterProfileRef") && ref.Secret.Name == "":
		return Reference{}, objects.Waiting(ReasonOtherAccess, "the MultiKueueCluster leads to a ClusterProfile: use the provider of these")
	case kind != "" && kind != "Secret":
		return Reference{}, objects.Waiting(ReasonOtherAccess, "the kubeconfig is at a location of type "+shown(kind)+", which Kueue alone can read")
	case ref.Secret.Name == "":
		return Reference{}, objects.Waiting(ReasonNoSecret, "the MultiKueueCluster has no location of a kubeconfig")
	}
	return ref, nil
}

// Rancher is the format of the Clusters of Rancher, of the group provisioning.cattle.io. Their kubeconfigs lead through
// Rancher's proxy (https://github.com/rancher/rancher/blob/main/pkg/apis/provisioning.cattle.io/v1/cluster_types.go). The
// cluster that Rancher runs in is one of them, in namespace fleet-local.
func Rancher() Format {
	return Format{
		Kinds: []schema.GroupKind{{Group: "provisioning.cattle.io", Kind: "Cluster"}},
		Read:  readRancher,
	}
}

func readRancher(obj *unstructured.Unstructured) (Reference, error) {
	ref, err := Fields{SecretName: "status.clientSecretName", Keys: []string{"value"}}.Read(obj)
	if err == nil && ref.Secret.Name == "" {
		err = objects.Waiting(ReasonNoSecret, "the Cluster has no status.clientSecretName yet")
	}
	return ref, err
}

// Sveltos is the format of the SveltosClusters of Sveltos: a Secret NAME-sveltos-kubeconfig, unless spec.kubeconfigName says
// another (https://github.com/projectsveltos/libsveltos/blob/main/api/v1beta1/sveltoscluster_type.go). Those in pull mode, and
// those with a workload identity, are Pending. For the Clusters of Cluster API, which Sveltos follows too, there is package
// capi.
func Sveltos() Format {
	return Format{
		Kinds: []schema.GroupKind{{Group: "lib.projectsveltos.io", Kind: "SveltosCluster"}},
		Read:  readSveltos,
	}
}

func readSveltos(obj *unstructured.Unstructured) (Reference, error) {
	r := reader{content: obj.Object}
	ref := Reference{Secret: client.ObjectKey{Name: r.text("spec.kubeconfigName")}}
	if key := r.text("spec.kubeconfigKeyName"); key != "" {
		ref.Keys = []string{key}
	}
	pull := r.yes("spec.pullMode")
	switch {
	case r.err != nil:
		return Reference{}, r.err
	case pull:
		return Reference{}, objects.Waiting(ReasonOtherAccess, "the cluster is in pull mode: its agent reaches out to Sveltos")
	case r.has("spec.workloadIdentity"):
		return Reference{}, objects.Waiting(ReasonOtherAccess, "the cluster is reached with a workload identity")
	case ref.Secret.Name == "":
		ref.Secret.Name = obj.GetName() + "-sveltos-kubeconfig"
	}
	return ref, nil
}

// VCluster is the format of the virtual clusters of vcluster, as its chart installs them: a StatefulSet with the label
// app=vcluster, and a Secret vc-NAME (https://github.com/loft-sh/vcluster/tree/main/chart). The server in the Secret is
// https://localhost:8443 unless the vcluster's exportKubeConfig.server says one that can be reached. Set Kinds to Deployment
// for vclusters without a volume.
func VCluster() Format {
	return Format{
		Kinds:    []schema.GroupKind{{Group: "apps", Kind: "StatefulSet"}},
		Selector: labels.SelectorFromSet(labels.Set{"app": "vcluster"}),
		Read: func(obj *unstructured.Unstructured) (Reference, error) {
			return Reference{Secret: client.ObjectKey{Name: "vc-" + obj.GetName()}, Keys: []string{"config"}}, nil
		},
	}
}
