package mchandler_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// west is a cluster, of which handlers of owners need the scheme.
type west struct{ cluster.Cluster }

func (west) GetScheme() *runtime.Scheme { return scheme.Scheme }

// An event on a ConfigMap in the cluster "west" becomes a request for the Service in "east" that controls it.
func ExampleEnqueueRequestForOwnerAcrossClusters() {
	owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1234"}}
	cart, err := mcowner.ReferenceTo("payments", mcowner.ByName("east"), owner, scheme.Scheme)
	if err != nil {
		fmt.Println(err)
		return
	}
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-settings"}}
	if err := mcowner.SetControllerReference(cart, dependent, mcowner.ByName("west")); err != nil {
		fmt.Println(err)
		return
	}

	member := mchandler.InClusters(func(name mcreconcile.ClusterName) bool { return name != mcreconcile.LocalCluster })
	handlerOf := mchandler.EnqueueRequestForOwnerAcrossClusters(&corev1.Service{}, mchandler.OnlyController, mchandler.OfFleet("payments"), member)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer queue.ShutDown()
	handlerOf("west", west{}).Create(context.Background(), event.CreateEvent{Object: dependent}, queue)
	for queue.Len() > 0 {
		req, _ := queue.Get()
		fmt.Println(req)
	}
	// Output: cluster://east/shop/cart
}

// TestOnlyOwnersThatAreAskedForAreEnqueued: those of the kind that pass every filter.
func TestOnlyOwnersThatAreAskedForAreEnqueued(t *testing.T) {
	t.Parallel()
	dependent := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-settings"}}
	}
	refer := func(dependent client.Object, fleet string, owner client.Object, set func(mcowner.Reference, client.Object, mcowner.ClusterID) error) {
		owner.SetNamespace("shop")
		owner.SetUID(types.UID(owner.GetName()))
		r, err := mcowner.ReferenceTo(fleet, mcowner.ByName("east"), owner, scheme.Scheme)
		if err == nil {
			err = set(r, dependent, mcowner.ByName("west"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	service := func(name string) *corev1.Service { return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	ours, theirs := dependent(), dependent()
	refer(ours, "ours", service("controller"), mcowner.SetControllerReference)
	refer(ours, "ours", service("owner"), mcowner.SetOwnerReference)
	refer(ours, "ours", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, mcowner.SetOwnerReference)
	refer(theirs, "theirs", service("stranger"), mcowner.SetOwnerReference)
	original := dependent()
	original.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	refer(original, "ours", service("controller"), mcowner.SetControllerReference)
	copied := &corev1.Secret{ObjectMeta: *original.ObjectMeta.DeepCopy()}
	garbled := ours.DeepCopy()
	for key := range garbled.Annotations {
		garbled.Annotations[key] = "{"
	}

	isEast := func(name mcreconcile.ClusterName) bool { return name == "east" }
	type filter = mchandler.OwnerFilter
	for name, tc := range map[string]struct {
		dependent client.Object
		ownerType client.Object
		filters   []filter
		want      []string
	}{
		"EachOfTheKind":          {ours, &corev1.Service{}, nil, []string{"controller", "owner"}},
		"TheController":          {ours, &corev1.Service{}, []filter{mchandler.OnlyController}, []string{"controller"}},
		"OfAnInstallation":       {ours, &corev1.Service{}, []filter{mchandler.OfFleet("ours")}, []string{"controller", "owner"}},
		"OfAnother":              {theirs, &corev1.Service{}, []filter{mchandler.OfFleet("ours")}, nil},
		"OneFilterOfTwo":         {theirs, &corev1.Service{}, []filter{mchandler.OfFleet("theirs"), mchandler.OnlyController}, nil},
		"InACluster":             {ours, &corev1.Secret{}, []filter{mchandler.InClusters(isEast)}, []string{"secret"}},
		"InAnother":              {ours, &corev1.Secret{}, []filter{mchandler.InClusters(func(name mcreconcile.ClusterName) bool { return !isEast(name) })}, nil},
		"OfAnotherKind":          {ours, &corev1.Secret{}, nil, []string{"secret"}},
		"OfAKindThatOwnsNone":    {ours, &corev1.Pod{}, nil, nil},
		"OfAKindThatNobodyKnows": {ours, &unknown{}, nil, nil},
		"OfADependentThatSaysIt": {original, &corev1.Service{}, nil, []string{"controller"}},
		"OfACopyInAnotherKind":   {copied, &corev1.Service{}, nil, nil},
		"ReferencesAreGarbled":   {garbled, &corev1.Service{}, nil, nil},
		"ThereAreNone":           {dependent(), &corev1.Service{}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
			defer queue.ShutDown()
			h := mchandler.EnqueueRequestForOwnerAcrossClusters(tc.ownerType, tc.filters...)
			h("west", west{}).Create(t.Context(), event.CreateEvent{Object: tc.dependent}, queue)
			var got []string
			for queue.Len() > 0 {
				req, _ := queue.Get()
				if req.ClusterName != "east" || req.Namespace != "shop" {
					t.Errorf("%s was enqueued, want an owner in the cluster of owners", req)
				}
				got = append(got, req.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("owners %q were enqueued, want %q", got, tc.want)
			}
		})
	}
}

// unknown is of a kind that is in no scheme.
type unknown struct{ corev1.Service }
