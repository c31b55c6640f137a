package dependents_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

func parsed(t *testing.T, selector string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTheLimitToTheLabelIsOnTopOfTheManagersOptions: what these leave out is left out, and nothing else of what is excepted.
func TestTheLimitToTheLabelIsOnTopOfTheManagersOptions(t *testing.T) {
	t.Parallel()
	const limit = mcowner.FleetLabel + "=" + fleetName
	secrets, pods, nodes := &corev1.Secret{}, &corev1.Pod{}, &corev1.Node{}
	for name, c := range map[string]struct {
		reason            string
		before            cache.Options
		usual             string
		namespaces        map[string]string // selectors of namespaces, by name
		secrets, deploy   string            // selectors of kinds
		podsIn, podsLabel string
	}{
		"Nothing": {reason: "Without options there is the limit.", usual: limit, secrets: "<none>", deploy: "", podsLabel: "<none>"},
		"Usual": {
			reason: "The usual selector holds for all kinds.", before: cache.Options{DefaultLabelSelector: parsed(t, "a=b")},
			usual: "a=b," + limit, secrets: "<none>", deploy: "a=b", podsLabel: "<none>",
		},
		"ByObject": {
			reason: "What is said of a kind holds too.",
			before: cache.Options{ByObject: map[client.Object]cache.ByObject{
				secrets: {Label: parsed(t, "c=d")}, &appsv1.Deployment{}: {Label: parsed(t, "e=f")},
				pods: {Namespaces: map[string]cache.Config{"n": {LabelSelector: parsed(t, "g=h")}}},
			}},
			usual: limit, secrets: "c=d," + limit, deploy: "e=f", podsIn: limit + ",g=h", podsLabel: "<none>",
		},
		"Namespaces": {
			reason: "What is said of namespaces holds too.",
			before: cache.Options{DefaultNamespaces: map[string]cache.Config{"m": {LabelSelector: parsed(t, "i=j")}, "n": {}}},
			usual:  limit, namespaces: map[string]string{"m": limit + ",i=j", "n": "<none>"}, secrets: "<none>", deploy: "", podsLabel: "<none>",
		},
		"SelectsNothing": {
			reason: "What selects nothing does so.", before: cache.Options{DefaultLabelSelector: labels.Nothing()},
			usual: labels.Nothing().String(), secrets: "<none>", deploy: labels.Nothing().String(), podsLabel: "<none>",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := cluster.Options{Cache: c.before}
			before := fmt.Sprint(c.before.ByObject, c.before.DefaultNamespaces)
			dependents.OnlyLabelled(fleetName, &appsv1.Deployment{}, nodes)(&o)
			text := func(s labels.Selector) string {
				if s == nil {
					return "<none>"
				}
				return s.String()
			}
			of := func(obj client.Object) cache.ByObject {
				for other, by := range o.Cache.ByObject {
					if fmt.Sprintf("%T", other) == fmt.Sprintf("%T", obj) {
						return by
					}
				}
				return cache.ByObject{}
			}
			podsIn := ""
			if in := of(pods).Namespaces; in != nil {
				podsIn = text(in["n"].LabelSelector)
			}
			var namespaces map[string]string
			for namespace, config := range o.Cache.DefaultNamespaces {
				if namespaces == nil {
					namespaces = map[string]string{}
				}
				namespaces[namespace] = text(config.LabelSelector)
			}
			got := []any{text(o.Cache.DefaultLabelSelector), namespaces, text(of(secrets).Label), text(of(&appsv1.Deployment{}).Label), podsIn, text(of(pods).Label)}
			want := []any{c.usual, c.namespaces, c.secrets, c.deploy, c.podsIn, c.podsLabel}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", c.reason, diff)
			}
			if _, ok := o.Cache.ByObject[nodes]; !ok || o.Cache.DefaultTransform == nil {
				t.Error("an exception is missing, or managedFields are kept")
			}
			if fmt.Sprint(c.before.ByObject, c.before.DefaultNamespaces) != before {
				t.Error("the options of other members have changed")
			}
		})
	}
}

// TestCachesCanBeLimitedToDependents: they hold nothing of what is not labelled, and all goes on as without that.
func TestCachesCanBeLimitedToDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.clusterOptions = func(fleet.Member) []cluster.Option { return []cluster.Option{dependents.OnlyLabelled(fleetName)} }
	const foreign = 200
	var creating errgroup.Group
	creating.SetLimit(8)
	for n := range foreign {
		creating.Go(func() error {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprint("foreign-", n)}}
			return one.Client().Create(t.Context(), secret)
		})
	}
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
	r := w.spread()
	dependents.Hasten(r, time.Second) // 15 to 20 for users
	desired := r.Desired
	r.Kinds = append(r.Kinds, &corev1.Secret{})
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		return append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: owner.Name}}), err
	}
	p := w.run(r)
	p.is(one, fleet.Ready)
	w.create(w.Local, w.owner("a", one.Name))
	cm := w.isCopied(one, "a")
	engagement, err := p.GetFleet().Engagement(fleet.ClusterName(one.Name))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cache has the dependents, and no more", func() bool {
		secrets := &corev1.SecretList{}
		if err := engagement.Cluster().GetCache().List(t.Context(), secrets); err != nil {
			t.Fatal(err)
		}
		if len(secrets.Items) > 1 {
			t.Fatalf("the cache has %d Secrets, want the 1 that is a dependent, and none of %d others", len(secrets.Items), foreign)
		}
		return len(secrets.Items) == 1 && p.knows(one, cm)
	})

	t.Run("ADependentThatLosesTheLabel", func(t *testing.T) {
		w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) {
			delete(cm.Labels, mcowner.FleetLabel)
			cm.Data["value"] = "by hand"
		})
		var now *corev1.ConfigMap
		eventually(t, "the dependent is as desired", func() bool {
			now = w.mustGet(one, copyOf("a"))
			return now.Labels[mcowner.FleetLabel] == fleetName && now.Data["value"] == "1"
		})
		if now.UID != cm.UID {
			t.Error("the dependent was created anew")
		}
	})
	t.Run("AnObjectOfSomebodyElse", func(t *testing.T) {
		w.create(one, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("b")}})
		before := w.mustGet(one, copyOf("b"))
		w.create(w.Local, w.owner("b", one.Name))
		w.told(w.Local, "b", dependents.EventConflict, copyOf("b"))
		if diff := cmp.Diff(before, w.mustGet(one, copyOf("b"))); diff != "" {
			t.Errorf("it was changed (-before, +after):\n%s", diff)
		}
		w.remove(one, copyOf("b"))
		w.isCopied(one, "b") // no event tells of it
	})
	t.Run("TheOwnerGoes", func(*testing.T) {
		w.remove(w.Local, "a")
		w.isGone(w.Local, "a")
		w.isGone(one, copyOf("a"))
	})
}
