package mcwebhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// secret returns that with the keys.
func (w *world) secret() *corev1.Secret { return w.secretOf("test") }

func (w *world) secretOf(name string) *corev1.Secret {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name + secretSuffix}}
	w.get(w.Local, s)
	return s
}

func (w *world) get(cp *mctest.ControlPlane, obj client.Object) {
	w.t.Helper()
	if err := cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) phaseIs(want phase) {
	w.t.Helper()
	w.eventually("the rotation is "+string(want), func() bool { return phase(w.secret().Data[dataPhase]) == want })
}

// writers write about 50 times a second to each member.
type writers struct {
	world *world
	stop  context.CancelFunc
	all   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	counts map[string]int
	failed []error
}

func (w *world) keepWriting() *writers {
	w.t.Helper()
	all := &writers{world: w, counts: map[string]int{}}
	var ctx context.Context
	ctx, all.stop = context.WithCancel(w.t.Context())
	for _, cp := range w.Members {
		cfg := cp.Config()
		cfg.QPS = -1
		writer, err := client.New(cfg, client.Options{})
		if err != nil {
			w.t.Fatal(err)
		}
		all.all.Go(func() { all.write(ctx, cp.Name, writer) })
	}
	w.t.Cleanup(func() { all.end() })
	return all
}

// write writes to one member until ctx ends.
func (all *writers) write(ctx context.Context, name string, writer client.Client) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: asked, GenerateName: "c-"}}
		err := writer.Create(ctx, cm)
		if ctx.Err() != nil {
			return
		}
		if err == nil && cm.Data["cluster"] != name {
			err = fmt.Errorf("it was not asked about: %v", cm.Data)
		}
		all.mu.Lock()
		if all.counts[name]++; err != nil {
			all.failed = append(all.failed, err)
		}
		all.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// more waits until each member was written to some times more.
func (all *writers) more() {
	all.world.t.Helper()
	all.mu.Lock()
	before := maps.Clone(all.counts)
	all.mu.Unlock()
	all.world.eventually("there were more writes", func() bool {
		all.mu.Lock()
		defer all.mu.Unlock()
		for _, cp := range all.world.Members {
			if all.counts[cp.Name] < before[cp.Name]+50 {
				return false
			}
		}
		return true
	})
}

// end ends the writing, and returns how often was written, and what failed.
func (all *writers) end() (count int, failed []error) {
	all.stop()
	all.all.Wait()
	for _, n := range all.counts {
		count += n
	}
	return count, all.failed
}

// TestARotationLosesNoWrite, of the key and of the authority.
func TestARotationLosesNoWrite(t *testing.T) {
	w := newWorld(t, 2)
	p := w.newProgram("Fail", nil)
	now := clocktesting.NewFakePassiveClock(time.Now())
	k := p.hooks.keeper
	k.clock, k.every = now, 50*time.Millisecond
	p.start()
	for _, cp := range w.Members {
		w.isAsked(cp)
	}
	before := w.secret()
	writing := w.keepWriting()
	writing.more()
	before.Annotations = map[string]string{AnnotationRotate: "now"}
	if err := w.Local.Client().Update(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	w.phaseIs(installing)
	for _, cp := range w.Members {
		w.knows(p, cp)
	}
	writing.more()
	now.SetTime(now.Now().Add(settles + time.Second))
	w.eventually("the certificate is of the new authority", func() bool {
		now.SetTime(now.Now().Add(settles + time.Second))
		return phase(w.secret().Data[dataPhase]) == switched
	})
	w.eventually("it is served", func() bool { return bytes.Equal(k.store.now.Load().served.cert, w.secret().Data[dataCert]) })
	p.call(p.path("member-1", "/nothing"))
	writing.more()
	now.SetTime(now.Now().Add(lingers + time.Second))
	w.phaseIs(steady)
	for _, cp := range w.Members {
		w.eventually(cp.Name+" trusts the new authority alone", func() bool {
			return bytes.Equal(w.configuration(cp).Webhooks[0].ClientConfig.CABundle, w.secret().Data[dataCA])
		})
	}
	writing.more() // over new connections
	count, failed := writing.end()
	if len(failed) > 0 {
		t.Errorf("%d of %d writes have failed, the first with: %v", len(failed), count, failed[0])
	}
	t.Logf("%d writes", count)
	after := w.secret()
	for _, name := range []string{dataKey, dataCA, dataCAKey, dataCert, dataCertKey} {
		if bytes.Equal(before.Data[name], after.Data[name]) {
			t.Errorf("%s is as before", name)
		}
	}
	if !bytes.Equal(before.Data[dataID], after.Data[dataID]) {
		t.Error("it is the Secret of another program")
	}
	for _, name := range []string{dataPreviousKey, dataPreviousCA, dataPreviousCAKey} {
		if len(after.Data[name]) > 0 {
			t.Errorf("%s is still there", name)
		}
	}
	if _, asked := after.Annotations[AnnotationRotate]; asked {
		t.Error("the annotation is still there")
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(before.Data[dataCA])
	leaf, err := first(after.Data[dataCert])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: trusted}); err == nil {
		t.Error("the old authority would do")
	}
}

// knows waits until the API server of a member asks as it is to ask now. What API servers know they show by what they ask.
func (w *world) knows(p *program, cp *mctest.ControlPlane) {
	w.t.Helper()
	for _, hook := range []string{"/validate--v1-configmap", "/mutate--v1-configmap"} {
		w.eventually(cp.Name+" asks with the new key", func() bool {
			_, is := p.asked.Load(p.path(fleet.ClusterName(cp.Name), hook))
			return is
		})
	}
}

// TestARotationWaitsForMembers, until API servers have noticed what was installed, but not for ever.
func TestARotationWaitsForMembers(t *testing.T) {
	w := newWorld(t, 1)
	p := w.newProgram("Ignore", nil).start()
	w.isAsked(w.Members[0])
	secrets, installs := p.hooks.keeper.store, p.hooks.keeper.installer
	begin := time.Now()
	rotated, err := secrets.now.Load().rotate("test", p.opts.host(), begin)
	if err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakePassiveClock(begin)
	k := newKeeper(p.Manager, secrets, installs) // is not started
	k.clock = now
	switches := func() bool {
		t.Helper()
		next, err := k.next(t.Context(), rotated, false)
		if err != nil {
			t.Fatal(err)
		}
		return next != nil && next.phase == switched
	}
	for range 2 {
		if now.SetTime(now.Now().Add(settles)); switches() {
			t.Error("no member has what is to be installed, and it goes on")
		}
	}
	w.store(rotated)
	w.eventually("the member has it", func() bool { return installs.everywhere(t.Context(), rotated) })
	if switches() {
		t.Error("the API server is given no time to notice")
	}
	if now.SetTime(now.Now().Add(settles)); !switches() {
		t.Error("it does not go on")
	}
	if rotated, err = rotated.rotate("test", p.opts.host(), begin); err != nil {
		t.Fatal(err)
	}
	if now.SetTime(begin.Add(patience - time.Second)); switches() {
		t.Error("it waits less than it may")
	}
	if now.SetTime(begin.Add(patience)); !switches() {
		t.Error("it waits for ever")
	}
}

// TestCertificatesAreRenewedInTime, by the authority that members trust.
func TestCertificatesAreRenewedInTime(t *testing.T) {
	const host = "hub.test"
	now := time.Now()
	m, err := newMaterial("test", host, now)
	if err != nil {
		t.Fatal(err)
	}
	if m.mustRenew(host, now) || m.mustRotate(now) {
		t.Error("what is new is to be renewed")
	}
	if !m.mustRenew("other.test", now) || !m.mustRenew(host, now.Add(certificateLives*3/4)) || !m.mustRotate(now.Add(authorityLives*3/4)) {
		t.Error("what is old, or of another host, is not to be renewed")
	}
	rotating, err := m.rotate("test", host, now)
	if err != nil {
		t.Fatal(err)
	}
	later := now.Add(certificateLives * 3 / 4)
	renewed, err := rotating.renew(host, later)
	if err != nil {
		t.Fatal(err)
	}
	done, err := renewed.switchOver(host, later)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ served, ca []byte }{
		"before": {m.served.cert, m.ca.cert}, "renewed meanwhile": {renewed.served.cert, m.ca.cert}, "after": {done.served.cert, rotating.ca.cert},
	} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(c.ca)
		leaf, err := first(c.served)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: leaf.NotBefore.Add(clockSkew)}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	read, err := parse(done.finish(later).data())
	if err != nil || read.id != m.id || len(read.previousKey) > 0 || read.certificate == nil {
		t.Errorf("what was stored is read as %+v, %v", read, err)
	}
}

// TestReplicasOfTwoHostsDoNotRenewInTurns: the certificate is for both, until it is old.
func TestReplicasOfTwoHostsDoNotRenewInTurns(t *testing.T) {
	now := time.Now()
	hosts := []string{"one.test", "192.0.2.1"}
	m, err := newMaterial("test", hosts[0], now)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.renew(hosts[1], now); err != nil {
		t.Fatal(err)
	}
	rotating, err := m.rotate("test", hosts[0], now)
	if err != nil {
		t.Fatal(err)
	}
	switched, err := rotating.switchOver(hosts[0], now)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		if m.mustRenew(host, now) || switched.mustRenew(host, now) {
			t.Errorf("the certificate is not for %s", host)
		}
	}
	old := now.Add(certificateLives * 3 / 4)
	if m, err = m.renew(hosts[1], old); err != nil || m.mustRenew(hosts[1], old) || !m.mustRenew(hosts[0], old) {
		t.Errorf("the next certificate is not for the one host that asks for it: %v", err)
	}
}

func TestASecretOfOthersIsNotUsed(t *testing.T) {
	m, err := newMaterial("test", "hub.test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{dataKey: "short", dataSince: "yesterday", dataCert: "AAAA", dataCertKey: "AAAA"} {
		data := m.data()
		data[name] = []byte(value)
		if _, err := parse(data); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s is %q: %v, want an error without it", name, value, err)
		}
	}
}
