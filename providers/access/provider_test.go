package access_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	tokens "github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/access"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

func TestAMemberWithAMinterOfLeastRightsIsEngaged(t *testing.T) {
	h, members := startHub(t, 1)
	accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, "east")
	f := follow(t, h)
	f.WaitFor(t, "east", fleet.Ready, "")
	f.WaitUntilKnownAs(t, "east", accesstest.WorkerUser)
	f.WaitUntil(t, "east", "known to expire", func(s fleet.Status, _ bool) bool {
		return s.Expires.After(time.Now()) && s.Expires.Before(time.Now().Add(time.Hour+time.Minute))
	})

	e, err := f.Engagement("east")
	hubtest.Must(t, err)
	if err := e.Cluster().GetAPIReader().List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
		t.Errorf("the worker lists Secrets, which nobody has allowed: %v", err)
	}
	cfg := members[0].Config()
	cfg.CertData, cfg.KeyData = nil, nil
	cfg.BearerToken = accesstest.Token(t, members[0], accesstest.Namespace, accesstest.Minter, 600)
	minter, err := client.New(cfg, client.Options{})
	hubtest.Must(t, err)
	if err := minter.List(t.Context(), &corev1.ConfigMapList{}); !apierrors.IsForbidden(err) {
		t.Errorf("the minter reads what the worker may: %v", err)
	}
}

func TestAFederatedMemberIsEngagedWithoutAnySecret(t *testing.T) {
	h, members := startHub(t, 1)
	accesstest.Federate(t, h.ControlPlane, members[0], h.namespace, "east", audience(members[0]))
	f := follow(t, h)
	f.WaitFor(t, "east", fleet.Ready, "")
	f.WaitUntilKnownAs(t, "east", accesstest.Prefix+"system:serviceaccount:"+h.namespace+":"+accesstest.Operator)
	for _, cp := range []*mctest.ControlPlane{h.ControlPlane, members[0]} {
		list := &corev1.SecretList{}
		hubtest.Must(t, cp.Client().List(t.Context(), list))
		if len(list.Items) != 0 {
			t.Errorf("%s has %d Secrets, want none", cp.Name, len(list.Items))
		}
	}
}

func audience(cp *mctest.ControlPlane) string {
	cfg := cp.Config()
	return tokens.Audience(cfg.Host, cfg.CAData, "")
}

func TestTokensForAServerThatWasEditedAreWorthNothingElsewhere(t *testing.T) {
	h, members := startHub(t, 1)
	accesstest.Federate(t, h.ControlPlane, members[0], h.namespace, "east", audience(members[0]))
	f := follow(t, h)
	f.WaitFor(t, "east", fleet.Ready, "")
	h.update(t, "east", func(a *v1alpha1.ClusterAccess) { // the same server, by another name
		a.Spec.Server = strings.Replace(a.Spec.Server, "127.0.0.1", "localhost", 1)
	})
	f.WaitFor(t, "east", fleet.Ready, fleet.ReasonUnauthorized) // the engagement of before goes on
	h.update(t, "east", func(a *v1alpha1.ClusterAccess) { a.Spec.Server = members[0].Config().Host })
	f.WaitFor(t, "east", fleet.Ready, "")
}

func TestAMinterIsNotUsedForAServerThatWasEdited(t *testing.T) {
	h, members := startHub(t, 1)
	accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, "east")
	h.update(t, "east", func(a *v1alpha1.ClusterAccess) {
		a.Spec.Server = strings.Replace(a.Spec.Server, "127.0.0.1", "localhost", 1)
	})
	f := follow(t, h)
	f.WaitFor(t, "east", fleet.Connecting, v1alpha1.ReasonMismatch)
}

func TestAMemberComesBackAfterItsAccountWasMadeAnew(t *testing.T) {
	h, members := startHub(t, 1)
	accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, "east")
	f := follow(t, h)
	f.WaitFor(t, "east", fleet.Ready, "")
	worker := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: accesstest.Namespace, Name: accesstest.Worker}}
	hubtest.Must(t, members[0].Client().Delete(t.Context(), worker.DeepCopy()))
	f.WaitFor(t, "east", fleet.Unreachable, v1alpha1.ReasonServiceAccountNotFound)
	hubtest.Must(t, members[0].Client().Create(t.Context(), worker))
	stage.Within(t, 30*time.Second, "the member is Ready again", func() bool {
		status, _ := f.Status("east")
		return status.State == fleet.Ready && status.Reason == ""
	})
}

func TestAMemberThatIsPausedIsNotConnected(t *testing.T) {
	h, members := startHub(t, 1)
	accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, "east")
	f := follow(t, h)
	f.WaitFor(t, "east", fleet.Ready, "")
	h.update(t, "east", func(a *v1alpha1.ClusterAccess) { a.Spec.Paused = true })
	f.WaitUntilGone(t, "east")
	h.update(t, "east", func(a *v1alpha1.ClusterAccess) { a.Spec.Paused = false })
	f.WaitFor(t, "east", fleet.Ready, "")
}

func TestNamesMayBeAsLongAsNamesMayBe(t *testing.T) {
	h, members := startHub(t, 1)
	long := strings.Repeat("n", 253)
	a := accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, strings.Repeat("n", 200))
	h.remove(t, a.Name)
	a = &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: long}, Spec: a.Spec}
	hubtest.Must(t, h.Client().Create(t.Context(), a))
	f := hubtest.Follow(t, h.Config(), &access.Provider{AllNamespaces: true})
	f.WaitFor(t, fleet.ClusterName(h.namespace+"/"+long), fleet.Ready, "")
}

func TestTheRightsOfThePageSuffice(t *testing.T) {
	h, members := startHub(t, 2)
	accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, "east")
	accesstest.Federate(t, h.ControlPlane, members[1], h.namespace, "west", audience(members[1]))
	bad := accesstest.New(members[0], h.namespace, "bad")
	bad.Spec.CABundle = []byte("-----BEGIN CERTIFICATE-----")
	bad.Spec.Federated = &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}
	hubtest.Must(t, h.Client().Create(t.Context(), bad))
	f := hubtest.Follow(t, hubtest.UserWithRights(t, h.ControlPlane, h.namespace, "../../docs/providers-access.md"), &access.Provider{Namespace: h.namespace})
	f.WaitFor(t, "east", fleet.Ready, "")
	f.WaitFor(t, "west", fleet.Ready, "")
	f.WaitFor(t, "bad", fleet.Pending, fleet.ReasonInvalid)
	hubtest.WaitForEvent(t, h.ControlPlane, bad, v1alpha1.ReasonInvalid)
}

func TestTheRightsOfTheControllersPageSuffice(t *testing.T) {
	h, members := startHub(t, 1)
	accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, "east")
	mgr, err := ctrl.NewManager(hubtest.UserWithRights(t, h.ControlPlane, h.namespace, "../../docs/access.md"), ctrl.Options{
		Scheme: h.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{h.namespace: {}}},
	})
	hubtest.Must(t, err)
	hubtest.Must(t, tokens.Controller{}.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); hubtest.Must(t, <-ended) })
	hubtest.Must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, hubtest.Patience, true, func(context.Context) (bool, error) {
		status := h.get(t, "east").Status
		return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) && !status.ExpirationTime.IsZero(), nil
	}))
}

func TestAProviderSaysWhatToSet(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for _, p := range []*access.Provider{{}, {Namespace: "fleet", AllNamespaces: true}} {
		if err := p.Run(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "providers/access: ") {
			t.Errorf("the error is %v", err)
		}
	}
	if err := (&access.Provider{}).Refresh(t.Context(), "unknown"); err != nil {
		t.Errorf("refreshing a member that is not known: %v", err)
	}
}
