package dependents

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// at is where the dependents of these tests are.
var at = mcowner.ClusterID{Name: "target", UID: "t"}

// ownerNamed returns a reference to an owner of the installation, changed by change.
func ownerNamed(name string, change ...func(*mcowner.Reference)) mcowner.Reference {
	r := mcowner.Reference{
		Fleet: "payments", Manager: "copier", Cluster: "source", ClusterUID: "s", APIVersion: "v1", Kind: "ConfigMap",
		Namespace: "default", Name: name, UID: "1", Controller: true,
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// placing is work for the owner a.
func placing() *placement {
	return &placement{
		engine: &engine{
			cfg: config{fleet: "payments", name: "copier"}, ledger: newLedger(), access: remote.NewAccess(&hub{uid: "h"}, "copier", 0, false),
		},
		asked: view{plan: &plan{ref: ownerNamed("a")}}, at: remote.Session{ID: at},
	}
}

// owned returns an object that these own, the first of them as its controller.
func owned(t *testing.T, owners ...mcowner.Reference) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-copy", UID: "9"}}
	for i, owner := range owners {
		set := mcowner.SetOwnerReference
		if i == 0 && owner.Controller {
			set = mcowner.SetControllerReference
		}
		if err := set(owner, cm, at); err != nil {
			t.Fatal(err)
		}
	}
	return cm
}

func notController(r *mcowner.Reference) { r.Controller = false }

// TestWhatMayBeChanged: what is this owner's, and what a policy lets it take. All else is left alone, with why.
func TestWhatMayBeChanged(t *testing.T) {
	t.Parallel()
	own := func(t *testing.T) *corev1.ConfigMap { t.Helper(); return owned(t, ownerNamed("a")) }
	free := func(t *testing.T) *corev1.ConfigMap { t.Helper(); return owned(t) }
	others := func(t *testing.T) *corev1.ConfigMap { t.Helper(); return owned(t, ownerNamed("b")) }
	inB := func(t *testing.T) *corev1.ConfigMap {
		t.Helper()
		return owned(t, ownerNamed("b", func(r *mcowner.Reference) { r.Namespace = "team-b" }))
	}
	going := func(of func(*testing.T) *corev1.ConfigMap) func(*testing.T) *corev1.ConfigMap {
		return func(t *testing.T) *corev1.ConfigMap {
			t.Helper()
			cm := of(t)
			cm.DeletionTimestamp = new(metav1.Now())
			return cm
		}
	}
	native := func(of func(*testing.T) *corev1.ConfigMap) func(*testing.T) *corev1.ConfigMap {
		return func(t *testing.T) *corev1.ConfigMap {
			t.Helper()
			cm := of(t)
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "2", Controller: new(true)}}
			return cm
		}
	}
	itself := func(of func(*testing.T) *corev1.ConfigMap) func(*testing.T) *corev1.ConfigMap {
		return func(t *testing.T) *corev1.ConfigMap {
			t.Helper()
			cm := of(t)
			cm.UID = ownerNamed("a").UID
			return cm
		}
	}
	const may, conflict, going1 = "may", "conflict", "going"
	for name, tc := range map[string]struct {
		obj    func(*testing.T) *corev1.ConfigMap
		policy Policy
		user   bool
		want   string
		says   string // why it is a conflict
	}{
		"its own": {obj: own, want: may},
		"its own, of several": {obj: func(t *testing.T) *corev1.ConfigMap {
			t.Helper()
			return owned(t, ownerNamed("a"), ownerNamed("b", notController))
		}, want: may},
		"its own, which goes":                {obj: going(own), want: going1},
		"nobody's":                           {obj: free, want: conflict, says: errNoReference.Error()},
		"nobody's, to be adopted":            {obj: free, policy: Policy{Conflict: AdoptUnowned}, want: may},
		"nobody's, to be adopted as any":     {obj: free, policy: Policy{Conflict: Adopt}, want: may},
		"nobody's, which goes":               {obj: going(free), policy: Policy{Conflict: AdoptUnowned}, want: conflict, says: errNoReference.Error()},
		"the owner itself":                   {obj: itself(free), want: conflict, says: errItself.Error()},
		"the owner itself, to be adopted":    {obj: itself(free), policy: Policy{Conflict: AdoptUnowned}, want: conflict, says: errItself.Error()},
		"the owner itself, another's":        {obj: itself(others), policy: Policy{Conflict: Adopt}, want: conflict, says: errItself.Error()},
		"the owner itself, adopted before":   {obj: itself(own), want: conflict, says: errItself.Error()},
		"a native controller's":              {obj: native(free), want: conflict, says: "Deployment"},
		"a native controller's, adopted":     {obj: native(free), policy: Policy{Conflict: Adopt}, want: conflict, says: "Deployment"},
		"a native controller's, of a tenant": {obj: native(free), user: true, want: conflict, says: errOthersOwn.Error()},
		"another owner's":                    {obj: others, want: conflict, says: "default/b"},
		"another owner's, adopted if free":   {obj: others, policy: Policy{Conflict: AdoptUnowned}, want: conflict, says: "default/b"},
		"another owner's, to be adopted":     {obj: others, policy: Policy{Conflict: Adopt}, want: may},
		"another owner's, which goes":        {obj: going(others), policy: Policy{Conflict: Adopt}, want: conflict, says: "default/b"},
		"another's, and a native one's":      {obj: native(others), policy: Policy{Conflict: Adopt}, want: conflict, says: "default/b"},
		"another's of the same cluster":      {obj: others, policy: Policy{Conflict: Adopt}, user: true, want: may},
		"another's of the cluster, a tenant": {obj: others, user: true, want: conflict, says: "default/b"},
		"another user's of the cluster":      {obj: inB, user: true, want: conflict, says: errOtherTenant.Error()},
		"another user's, to be adopted":      {obj: inB, policy: Policy{Conflict: Adopt}, user: true, want: conflict, says: errOtherTenant.Error()},
		"another namespace's, to be adopted": {obj: inB, policy: Policy{Conflict: Adopt}, want: may},
		"another tenant's": {
			obj:    func(t *testing.T) *corev1.ConfigMap { t.Helper(); return owned(t, ownerNamed("b", elsewhere)) },
			policy: Policy{Conflict: Adopt}, user: true, want: conflict, says: errOtherTenant.Error(),
		},
		"another cluster's, to be adopted": {
			obj:    func(t *testing.T) *corev1.ConfigMap { t.Helper(); return owned(t, ownerNamed("b", elsewhere)) },
			policy: Policy{Conflict: Adopt}, want: may,
		},
		"another installation's": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				return owned(t, ownerNamed("a", func(r *mcowner.Reference) { r.Fleet = "shop" }))
			},
			policy: Policy{Conflict: Adopt}, want: conflict, says: "default/a",
		},
		"marked by an installation": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				cm := owned(t)
				cm.Labels = map[string]string{mcowner.FleetLabel: "shop"}
				return cm
			},
			policy: Policy{Conflict: Adopt}, want: conflict, says: errNoReference.Error(),
		},
		"of the owner before, suspended": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				return owned(t, ownerNamed("a", func(r *mcowner.Reference) { r.UID = "0" }))
			},
			policy: Policy{Suspend: true}, want: going1,
		},
		"of its name in another cluster": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				return owned(t, ownerNamed("a", func(r *mcowner.Reference) { r.ClusterUID = "other" }))
			},
			policy: Policy{Conflict: Adopt}, want: conflict, says: "other",
		},
		"a copy from another cluster": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-copy"}}
				if err := mcowner.SetControllerReference(ownerNamed("a"), cm, mcowner.ClusterID{Name: at.Name, UID: "before"}); err != nil {
					t.Fatal(err)
				}
				return cm
			},
			policy: Policy{Conflict: Adopt}, want: conflict, says: errCopy.Error(),
		},
		"a copy of another's": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				cm := owned(t)
				if err := mcowner.SetControllerReference(ownerNamed("b"), cm, mcowner.ClusterID{Name: "target", UID: "before"}); err != nil {
					t.Fatal(err)
				}
				return cm
			},
			want: conflict, says: errNoReference.Error(),
		},
		"its own, and another's before": {obj: func(t *testing.T) *corev1.ConfigMap {
			t.Helper()
			cm := own(t)
			if err := mcowner.SetOwnerReference(ownerNamed("b", notController), cm, at); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"c", "d", "e", "f"} { // of whatever order
				if err := mcowner.SetOwnerReference(ownerNamed(name, notController), cm, at); err != nil {
					t.Fatal(err)
				}
			}
			return cm
		}, want: may},
		"one of an owner in another cluster, without tenants": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				return owned(t, ownerNamed("secret-name", elsewhere))
			},
			want: conflict, says: "secret-name",
		},
		"one that cannot be read": {
			obj: func(t *testing.T) *corev1.ConfigMap {
				t.Helper()
				cm := own(t)
				cm.Annotations[ownerNamed("a").Key()] = "{"
				return cm
			},
			policy: Policy{Conflict: Adopt}, want: conflict, says: mcowner.ErrMalformed.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := placing()
			if tc.user {
				p.engine.writers.User = func(owner mcreconcile.Request) string { return "user-of-" + owner.Namespace }
			}
			err := p.mayChange(t.Context(), wanted{Policy: tc.policy}, tc.obj(t))
			got := may
			if _, is := errors.AsType[*ConflictError](err); is {
				got = conflict
			} else if errors.Is(err, errGoing) {
				got = going1
			}
			if got != tc.want || err != nil && !strings.Contains(err.Error(), tc.says) || (err == nil) != (got == may) {
				t.Errorf("it is %q: %v, want %q: %s", got, err, tc.want, tc.says)
			}
		})
	}
}

func elsewhere(r *mcowner.Reference) { r.Cluster, r.ClusterUID = "other", "o" }

// TestWhatIsAnOwnersAlone may be deleted and created anew.
func TestWhatIsAnOwnersAlone(t *testing.T) {
	t.Parallel()
	p := placing()
	withNative := owned(t, ownerNamed("a"))
	withNative.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "2"}}
	adopted := owned(t, ownerNamed("a"))
	adopted.Annotations[mcowner.AdoptedAnnotation] = "payments"
	broken := owned(t, ownerNamed("a"))
	broken.Annotations[mcowner.KeyPrefix+"x"] = "{"
	for name, tc := range map[string]struct {
		obj        *corev1.ConfigMap
		own, alone bool
	}{
		"its own":                     {owned(t, ownerNamed("a")), true, true},
		"also another's":              {owned(t, ownerNamed("a"), ownerNamed("b", notController)), true, false},
		"also a native owner's":       {withNative, true, false},
		"its own, and there before":   {adopted, true, false},
		"nobody's":                    {owned(t), false, false},
		"another's":                   {owned(t, ownerNamed("b")), false, false},
		"owned, and not controlled":   {owned(t, ownerNamed("a", notController)), false, false},
		"with what cannot be read":    {broken, false, false},
		"of another UID, of the name": {owned(t, ownerNamed("a", func(r *mcowner.Reference) { r.UID = "0" })), false, false},
	} {
		if own := p.isOwn(remote.Kind{}, tc.obj); own != tc.own {
			t.Errorf("%s: it is its own: %t", name, own)
		}
		if alone := p.isOwnAlone(remote.Kind{}, tc.obj); alone != tc.alone {
			t.Errorf("%s: it is its own alone: %t", name, alone)
		}
	}
}

// TestWhatSaysThatItIsTheOwnersOwn holds the owner up, though it is another cluster's by its identity.
func TestWhatSaysThatItIsTheOwnersOwn(t *testing.T) {
	t.Parallel()
	inAnother := func(r *mcowner.Reference) { r.ClusterUID = "other" }
	for name, tc := range map[string]struct {
		owner mcowner.Reference
		want  bool
	}{
		"it does":          {ownerNamed("a", inAnother), true},
		"another UID":      {ownerNamed("a", inAnother, func(r *mcowner.Reference) { r.UID = "0" }), false},
		"another name":     {ownerNamed("b", inAnother), false},
		"another manager":  {ownerNamed("a", func(r *mcowner.Reference) { r.Manager = "other" }), false},
		"no controller":    {ownerNamed("a", inAnother, notController), true},
		"another location": {ownerNamed("a", elsewhere), false},
	} {
		err := placing().contested(remote.Kind{}, owned(t, tc.owner))
		if _, is := errors.AsType[*ConflictError](err); is != tc.want || (err != nil) != tc.want {
			t.Errorf("%s: the owner is held up by %v, want %t", name, err, tc.want)
		}
	}
}

// patches has the last patch that was sent.
type patches struct {
	client.Client

	sent []byte
}

// Patch implements client.Client.
func (p *patches) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) (err error) {
	p.sent, err = patch.Data(obj)
	return err
}

// Apply implements client.Client.
func (*patches) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

// TestWhatIsTakenOverIsTakenAsItWasRead: it may be somebody else's meanwhile.
func TestWhatIsTakenOverIsTakenAsItWasRead(t *testing.T) {
	t.Parallel()
	p, to := placing(), &patches{}
	p.writer, p.engine.access = to, &remote.Access{Timeout: time.Minute}
	existing := owned(t, ownerNamed("b"))
	existing.ResourceVersion = "7"
	config := &unstructured.Unstructured{Object: map[string]any{}}
	taken, err := p.takeOver(t.Context(), wanted{}, existing, config)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(to.sent), `"resourceVersion":"7"`) {
		t.Errorf("it was taken by %s", to.sent)
	}
	if references, _ := mcowner.References(taken, at); len(references) > 0 {
		t.Errorf("after that it has the owners %v", references)
	}
	own := owned(t, ownerNamed("a"))
	if same, err := p.takeOver(t.Context(), wanted{}, own, config); err != nil || same != client.Object(own) {
		t.Errorf("what is its own was taken over: %v, %v", same, err)
	}
}
