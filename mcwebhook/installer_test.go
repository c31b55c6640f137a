package mcwebhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

func configurationOf(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// configuration returns what a member has, nil if there is nothing.
func (w *world) configuration(cp *mctest.ControlPlane) *admissionregistrationv1.ValidatingWebhookConfiguration {
	w.t.Helper()
	c := configurationOf("test")
	err := cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(c), c)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func TestWhatOthersChangeIsPutRight(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	w.newProgram("Fail", nil).start()
	w.isAsked(cp)
	right := w.configuration(cp).Webhooks
	for what, change := range map[string]func(c *admissionregistrationv1.ValidatingWebhookConfiguration){
		"another policy": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
		},
		"another address": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.URL = new("https://elsewhere.test/")
		},
		"no objects": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "object"}}
		},
		"a condition": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		},
		"one more": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			more := *c.Webhooks[0].DeepCopy()
			more.Name = "more.example.com"
			c.Webhooks = append(c.Webhooks, more)
		},
		"none": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks = nil },
	} {
		c := w.configuration(cp)
		change(c)
		if err := cp.Client().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		w.eventually(what+" is put right", func() bool {
			now := w.configuration(cp)
			return len(now.Webhooks) == 1 && now.Webhooks[0].String() == right[0].String()
		})
	}
	if err := cp.Client().Delete(t.Context(), configurationOf("test")); err != nil {
		t.Fatal(err)
	}
	w.isAsked(cp)
}

func TestAMemberThatLeavesKeepsNoConfiguration(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	p := w.newProgram("Fail", nil).start()
	w.isAsked(cp)
	theirs := configurationOf("theirs")
	w.create(cp, theirs)
	left, err := p.Leave(fleet.Member{Name: fleet.ClusterName(cp.Name), Config: cp.Config()})
	if err != nil {
		t.Fatal(err)
	}
	<-left
	if c := w.configuration(cp); c != nil {
		t.Errorf("a member that has left has %+v", c)
	}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := cp.Client().Get(t.Context(), client.ObjectKey{Name: "test"}, m); !apierrors.IsNotFound(err) {
		t.Errorf("a member that has left has %+v: %v", m, err)
	}
	if _, err := w.write(cp, cp.Name); err != nil {
		t.Error(err)
	}
	if err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Errorf("the configuration of another: %v", err)
	}
}

// TestAConfigurationThatAnEarlierVersionHadGoes with the last webhook of its kind, which would refuse all writes otherwise.
func TestAConfigurationThatAnEarlierVersionHadGoes(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	before := w.newProgram("Fail", nil).start()
	w.isAsked(cp)
	before.end()
	w.newProgram("Fail", func(o *Options) {
		validatingAlone := strings.NewReplacer("MutatingWebhook", "ValidatingWebhook", "POLICY", "Ignore").Replace(manifests)
		var err error
		if o.Configurations, err = Parse([]byte(validatingAlone)); err != nil {
			t.Fatal(err)
		}
	}).start()
	w.eventually("the mutating configuration is gone", func() bool {
		err := cp.Client().Get(t.Context(), client.ObjectKey{Name: "test"}, &admissionregistrationv1.MutatingWebhookConfiguration{})
		return apierrors.IsNotFound(err)
	})
	if w.configuration(cp) == nil {
		t.Error("the other one is gone too")
	}
}

// TestConversionIsRegisteredOnce, by kinds of the local cluster or by those of members, which the local cluster serves.
func TestConversionIsRegisteredOnce(t *testing.T) {
	p := newWorld(t, 0).newProgram("Ignore", nil)
	p.GetWebhookServer().Register("/convert", http.NotFoundHandler())
	p.hooks.GetWebhookServer().Register("/convert", http.NotFoundHandler())
}

// notInstalled returns the reason that metrics show of a member, empty if there is none.
func notInstalled(t *testing.T, name string) (reason string) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "fleet_runtime_webhooks_not_installed" {
			continue
		}
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range series.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["cluster"] == name {
				reason = labels["reason"]
			}
		}
	}
	return reason
}

func TestAMemberWithoutTheRightSaysSo(t *testing.T) {
	w := newWorld(t, 2)
	p := w.newProgram("Fail", nil)
	poor := w.Members[0]
	read := rbacv1.PolicyRule{
		APIGroups: []string{"admissionregistration.k8s.io"}, Verbs: []string{"get", "list", "watch"},
		Resources: []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
	}
	p.join(fleet.Member{Name: "member-1", Config: poor.AddUser(t, "poor", read)})
	p.start()
	w.isAsked(w.Members[1])
	w.eventually("a series says why", func() bool { return notInstalled(t, "member-1") == fleet.ReasonForbidden })
	read.Verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"} // those of docs/admission.md
	core := rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"get", "list", "watch"}, Resources: []string{"configmaps", "namespaces"}}
	p.join(fleet.Member{Name: "member-1", Config: poor.AddUser(t, "rich", read, core)})
	w.isAsked(poor)
	w.eventually("the series is gone", func() bool { return notInstalled(t, "member-1") == "" })
}

// TestAConfigurationOfOthersIsLeftAlone that has the name.
func TestAConfigurationOfOthersIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1)
	w.create(w.Members[0], configurationOf("test"))
	w.newProgram("Fail", nil).start()
	w.eventually("a series says so", func() bool { return notInstalled(t, "member-1") != "" })
	if c := w.configuration(w.Members[0]); len(c.Webhooks) > 0 {
		t.Errorf("it has %+v", c.Webhooks)
	}
}

// TestOneKindDoesNotHoldTheOther that cannot be installed.
func TestOneKindDoesNotHoldTheOther(t *testing.T) {
	w := newWorld(t, 1)
	w.create(w.Members[0], configurationOf("test"))
	w.newProgram("Fail", nil).start()
	w.eventually("objects are changed", func() bool {
		cm, err := w.write(w.Members[0], "allowed")
		return err == nil && cm.Data["cluster"] == "member-1"
	})
}

// TestAMemberMayHaveAnyName, also the longest one.
func TestAMemberMayHaveAnyName(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	w.Members = nil // it joins by another name
	p := w.newProgram("Fail", nil)
	longest := strings.Repeat("a", 63) + "/" + strings.Repeat("b.", 126) + "b"
	if len(longest) != fleet.MaxNameLength {
		t.Fatalf("it has %d characters", len(longest))
	}
	p.join(fleet.Member{Name: fleet.ClusterName(longest), Config: cp.Config()})
	p.start()
	w.isAsked(cp)
	if cm, err := w.write(cp, "allowed"); err != nil || cm.Data["cluster"] != longest {
		t.Errorf("it is served as %v: %v", cm.Data, err)
	}
}

// TestMembersAreWrittenWhileNobodyAnswers, unless a webhook says otherwise.
func TestMembersAreWrittenWhileNobodyAnswers(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	p := w.newProgram("Ignore", nil).start()
	w.isAsked(cp)
	p.end()
	w.Local.Stop(t)
	if _, err := w.write(cp, cp.Name); err != nil {
		t.Errorf("writing while the hub is down: %v", err)
	}
}

// startShared starts two replicas, each of which works on one of two members, and returns the one that all API servers ask. It is told to
// prepare before.
func startShared(w *world, prepare func(one *program)) *program {
	w.t.Helper()
	share := func(name string) mcmanager.FleetOption {
		return mcmanager.Sharded(sharding.Options{
			ID: "shared", Namespace: w.namespace, Name: name, LeaseDuration: 6 * time.Second, Settle: time.Second,
		})
	}
	one := w.newProgram("Fail", nil, share("one"))
	two := w.newProgram("Fail", func(o *Options) { o.URL = one.opts.URL }, share("two"))
	prepare(one)
	one.start()
	two.start()
	w.eventually("each has a member", func() bool { return one.works() == 1 && two.works() == 1 })
	for _, cp := range w.Members {
		w.isAsked(cp)
	}
	return one
}

// works returns on how many members a replica works.
func (p *program) works() (count int) {
	for _, status := range p.GetFleet().List(nil) {
		if status.State == fleet.Ready {
			count++
		}
	}
	return count
}

// TestAnyReplicaAnswers, also for members that another one works on.
func TestAnyReplicaAnswers(t *testing.T) {
	w := newWorld(t, 2)
	one := startShared(w, func(*program) {})
	for _, cp := range w.Members {
		status, _ := one.GetFleet().Status(fleet.ClusterName(cp.Name))
		if cm, err := w.write(cp, "allowed"); err != nil || cm.Data["cluster"] != cp.Name {
			t.Errorf("one replica, for which %s is %s: %v, %v", cp.Name, status.State, cm.Data, err)
		}
		before := caller{status.Name, "another", "/validate--v1-configmap"}.path(one.hooks.keeper.store.now.Load().key)
		if code, answer := one.call(before); code != http.StatusNotFound {
			t.Errorf("the cluster that had the name of %s, which is %s: %s", cp.Name, status.State, answer)
		}
	}
}

// TestARequestForAnotherReplicasMemberEndsWithThat, when the member goes.
func TestARequestForAnotherReplicasMemberEndsWithThat(t *testing.T) {
	w := newWorld(t, 2)
	begun, told := make(chan error), make(chan struct{})
	one := startShared(w, func(one *program) {
		one.hooks.server.longest = time.Hour // what ends it is the member
		one.handle(1000, func(_ http.ResponseWriter, r *http.Request) {
			begun <- r.Context().Err()
			<-r.Context().Done()
			close(told)
		})
	})
	for _, status := range one.GetFleet().List(nil) {
		if status.State != fleet.NotOwned {
			continue
		}
		g, leave, err := one.GetFleet().SharedGuest(t.Context(), status.Name)
		if err != nil {
			t.Fatal(err)
		}
		path := caller{status.Name, g.Identity(), validatePath}.path(one.hooks.keeper.store.now.Load().key)
		leave()
		ask(t, one.dial(), path)
		if err := <-begun; err != nil {
			t.Errorf("the request has begun with: %v", err)
		}
		one.Remove(status.Name)
		<-told
	}
}

func TestErrorsShowNoKeys(t *testing.T) {
	m, err := newMaterial("test", "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := caller{"east", "id", "/validate"}
	shown := concealed{apierrors.NewBadRequest("cannot use https://hub.test" + c.path(m.key)), proofs(m, "east", "id")}
	if text := shown.Error(); strings.Contains(text, c.proof(m.key)) || !strings.Contains(text, "(key)") {
		t.Error(text)
	}
	if !apierrors.IsBadRequest(shown) {
		t.Error("it is not what it was")
	}
}
