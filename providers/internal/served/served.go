// Package served finds out in which version a cluster serves a kind of object. Kinds of others change their version, and
// a provider that knows one version alone would wait for ever on a cluster that serves another.
package served

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

const firstRetry, lastRetry = time.Second, 30 * time.Second

// Provider is the provider that asks, and the fleet that hears of its problems.
type Provider struct {
	// Name is the [fleet.Problem.Provider].
	Name string
	// Members are those of the provider.
	Members fleet.Members
}

// Wait returns the kind in the first of the versions that the cluster serves, or in the version that the server prefers if
// none is given. While the cluster serves none of them, or is away, that is a problem of the provider, and Wait tries again.
// ok is false only when ctx is done.
func (p Provider) Wait(
	ctx context.Context, cl cluster.Cluster, kind schema.GroupKind, versions ...string,
) (found schema.GroupVersionKind, ok bool) {
	delay := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.1, Steps: 6, Cap: lastRetry}.DelayFunc()
	err := delay.Until(ctx, true, false, func(context.Context) (bool, error) {
		var err error
		found, err = version(cl.GetRESTMapper(), kind, versions)
		p.tell(kind, err)
		return err == nil, nil
	})
	return found, err == nil
}

// tell reports that the kind cannot be watched for this reason, or that it can.
func (p Provider) tell(kind schema.GroupKind, why error) {
	problem := fleet.Problem{Provider: p.Name, About: kind.Kind + " objects"}
	if why != nil {
		advice := "the local cluster cannot be asked"
		if meta.IsNoMatchError(why) {
			advice = "the local cluster does not serve the kind"
		}
		problem.Reason = fleet.ReasonOf(why)
		problem.Message = fmt.Sprintf("clusters are not discovered: %s: %v", advice, why)
	}
	p.Members.SetProblem(problem)
}

func version(mapper meta.RESTMapper, kind schema.GroupKind, versions []string) (schema.GroupVersionKind, error) {
	if len(versions) == 0 {
		return mapped(mapper, kind)
	}
	for _, v := range versions {
		// One by one: asked for several, the mapper prefers what it knows already.
		found, err := mapped(mapper, kind, v)
		if !meta.IsNoMatchError(err) {
			return found, err
		}
	}
	return schema.GroupVersionKind{}, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

func mapped(mapper meta.RESTMapper, kind schema.GroupKind, versions ...string) (schema.GroupVersionKind, error) {
	mapping, err := mapper.RESTMapping(kind, versions...)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("asking in which version %s is served: %w", kind, err)
	}
	return mapping.GroupVersionKind, nil
}
