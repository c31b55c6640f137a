// Package served finds out in which version a cluster serves a kind of object. Kinds of others change their version, and
// a provider that knows one version alone would wait for ever on a cluster that serves another.
package served

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const firstRetry, lastRetry = time.Second, 30 * time.Second

// Wait returns the kind in the first of the versions that the cluster serves, or in the version that the server prefers if
// none is given. While the cluster serves none of them, or is away, Wait says so in the log and tries again. ok is false only
// when ctx is done.
func Wait(
	ctx context.Context, cl cluster.Cluster, kind schema.GroupKind, versions ...string,
) (found schema.GroupVersionKind, ok bool) {
	delay := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.1, Steps: 6, Cap: lastRetry}.DelayFunc()
	err := delay.Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		var err error
		if found, err = version(cl.GetRESTMapper(), kind, versions); err != nil {
			logf.FromContext(ctx).Error(err, "Clusters are not discovered yet: the kind of object that describes them cannot be "+
				"watched. Is it served by the local cluster?", "kind", kind)
		}
		return err == nil, nil
	})
	return found, err == nil
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
	return schema.GroupVersionKind{}, fmt.Errorf("%s is served in none of the versions %s", kind, strings.Join(versions, ", "))
}

func mapped(mapper meta.RESTMapper, kind schema.GroupKind, versions ...string) (schema.GroupVersionKind, error) {
	mapping, err := mapper.RESTMapping(kind, versions...)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("asking in which version %s is served: %w", kind, err)
	}
	return mapping.GroupVersionKind, nil
}
