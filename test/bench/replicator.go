package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// replication is one Replicator with objects of five kinds, and the same done by kubectl.
type replication struct {
	fleet    *mctest.Fleet // of no members: the disguise has them
	cp       *mctest.ControlPlane
	members  int
	disguise *disguise
	folder   string // of programs and files
	root     string // of this module
	replicas []*exec.Cmd
}

// kubectls is how many of them run side by side.
const kubectls = 16

// replicatorTable answers: how long does the replicator take to bring objects to many members, beside kubectl apply in a loop?
func replicatorTable(ctx context.Context) error {
	r := &replication{members: *replicatorMembers}
	err := r.setUp(ctx)
	if err == nil {
		err = r.table(ctx)
	}
	if err != nil {
		log, _ := os.ReadFile(r.log(0)) // there is none before it runs
		err = fmt.Errorf("%w\nthe replicator has logged:\n%s", err, log[max(0, len(log)-3000):])
	}
	return errors.Join(err, r.end())
}

func (r *replication) setUp(ctx context.Context) (err error) {
	if r.root, err = moduleFolder(ctx); err != nil {
		return err
	}
	if r.folder, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	progressf("building the replicator")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(r.root, "operators/replicator"), "-o", r.file("replicator"), ".") //nolint:gosec // it is ours
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the replicator: %w\n%s", err, output)
	}
	r.fleet, err = mctest.New(ctx, mctest.Options{CRDPaths: []string{
		filepath.Join(r.root, "operators/replicator/v1alpha1/crd.yaml"), filepath.Join(r.root, "mcowner/dependents/v1alpha1/crd.yaml"),
	}})
	if err != nil {
		return err
	}
	r.cp = r.fleet.Local
	system := &corev1.Namespace{}
	if err := r.cp.Client().Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return err
	}
	if r.disguise, err = newDisguise(r.cp.Config(), string(system.UID)); err != nil {
		return err
	}
	return r.createMembers(ctx)
}

func (r *replication) file(name string) string { return filepath.Join(r.folder, name) }

func (r *replication) log(replica int) string { return r.file(fmt.Sprintf("log-%d", replica)) }

func (r *replication) end() error {
	var err error
	for _, p := range r.replicas {
		_ = p.Process.Kill()
		_ = p.Wait() // it was killed
	}
	if r.disguise != nil {
		err = r.disguise.close()
	}
	if r.fleet != nil {
		err = errors.Join(err, r.fleet.Close())
	}
	if r.folder != "" {
		err = errors.Join(err, os.RemoveAll(r.folder))
	}
	return err
}

// createMembers creates what is in the hub, and in members: their namespaces, and a tenant that may do all.
func (r *replication) createMembers(ctx context.Context) error {
	progressf("creating %d members", r.members)
	for _, name := range []string{"fleet", disguised} {
		if err := r.cp.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := r.cp.Client().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "fleet-runtime:replicator:" + disguised}},
	}); err != nil {
		return err
	}
	return each(ctx, r.members, func(ctx context.Context, i int) error {
		kubeconfig, err := mctest.Kubeconfig(r.disguise.config(i))
		if err == nil {
			err = os.WriteFile(r.file(memberName(i)), kubeconfig, 0o600)
		}
		if err == nil {
			err = r.cp.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inServer(i)}})
		}
		if err != nil {
			return err
		}
		return r.cp.Client().Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: memberName(i), Labels: map[string]string{measure.SecretLabel: labelled, targetLabel: labelled}},
			Data:       map[string][]byte{measure.SecretKey: kubeconfig},
		})
	})
}

// start starts the replicator, as so many processes.
func (r *replication) start(ctx context.Context) error {
	kubeconfig, err := mctest.Kubeconfig(r.disguise.config(hubMember))
	if err == nil {
		err = os.WriteFile(r.file("hub"), kubeconfig, 0o600)
	}
	for i := 0; err == nil && i < *replicatorReplicas; i++ {
		err = r.startReplica(ctx, i)
	}
	return err
}

func (r *replication) startReplica(ctx context.Context, i int) error {
	log, err := os.Create(r.log(i))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	p := exec.CommandContext(ctx, r.file("replicator"), "--kubeconfig", r.file("hub"), "--namespace", "fleet", //nolint:gosec // it is ours
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--sharded="+strconv.FormatBool(*replicatorReplicas > 1))
	p.Env = append(os.Environ(), "POD_NAME=replicator-"+strconv.Itoa(i)) // as in a StatefulSet
	p.Stdout, p.Stderr = log, log
	if err := p.Start(); err != nil {
		return err
	}
	r.replicas = append(r.replicas, p)
	return nil
}

// fiveKinds are manifests of five kinds, of which each has the version.
var fiveKinds = template.Must(template.New("").Parse(`[
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{.Name}}"},"data":{"version":"{{.Version}}"}},
{"apiVersion":"v1","kind":"Secret","metadata":{"name":"{{.Name}}"},"stringData":{"version":"1"}},
{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"{{.Name}}"}},
{"apiVersion":"v1","kind":"Service","metadata":{"name":"{{.Name}}"},"spec":{"clusterIP":"None","selector":{"app":"{{.Name}}"},"ports":[{"name":"http","port":80}]}},
{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"{{.Name}}"},"spec":{"selector":{"matchLabels":{"app":"{{.Name}}"}},
 "template":{"metadata":{"labels":{"app":"{{.Name}}"}},"spec":{"containers":[{"name":"main","image":"image:1"}]}}}}
]`))

func manifests(name, version string) (all []any, err error) {
	var text bytes.Buffer
	err = errors.Join(fiveKinds.Execute(&text, struct{ Name, Version string }{name, version}), json.Unmarshal(text.Bytes(), &all))
	return all, err
}

func (r *replication) replicator() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("replicator.fleet-runtime.dev/v1alpha1")
	u.SetKind("Replicator")
	u.SetNamespace(disguised)
	u.SetName("bench")
	return u
}

func (r *replication) table(ctx context.Context) error {
	t := table{
		title: fmt.Sprintf("The replicator: 5 objects in each of %d members", r.members),
		header: []string{
			"", fmt.Sprintf("replicator, %d processes", *replicatorReplicas),
			fmt.Sprintf("kubectl apply --server-side for each member, %d at once", kubectls), "time, to kubectl's",
		},
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := r.engaged(ctx); err != nil {
		return err
	}
	for i, name := range []string{"first rollout", "one field of one kind changed"} {
		if err := r.both(ctx, &t, name, strconv.Itoa(i)); err != nil {
			return err
		}
	}
	t.print()
	largest, slices, err := r.status(ctx)
	if err != nil {
		return err
	}
	writes, err := r.quiet(ctx)
	if err != nil {
		return err
	}
	said := table{title: "After that", header: []string{"", ""}}
	said.add("largest object with status", fmt.Sprintf("%d KiB, of %d", largest>>10, slices))
	said.add("writes in a minute of nothing, in the hub and all members", fmt.Sprint(writes))
	if err := r.stop(&said); err != nil {
		return err
	}
	said.print()
	return nil
}

// engaged waits until the replicator has asked each member for its objects.
func (r *replication) engaged(ctx context.Context) error {
	progressf("waiting until the members are connected")
	return until(ctx, func() (bool, error) {
		engaged := 0
		for i := range r.replicas {
			log, err := os.ReadFile(r.log(i))
			if err != nil {
				return false, err
			}
			engaged += bytes.Count(log, []byte("msg=Engaged cluster=member"))
		}
		return engaged >= r.members, nil
	})
}

// both measures a change by the replicator, and then by kubectl.
func (r *replication) both(ctx context.Context, t *table, name, version string) error {
	progressf("%s, by the replicator", name)
	ours, err := took(func() error { return r.replicate(ctx, version) })
	if err != nil {
		return err
	}
	progressf("%s, by kubectl", name)
	theirs, err := took(func() error { return r.apply(ctx, version) })
	if err != nil {
		return err
	}
	t.add(name, ours.Round(time.Millisecond).String(), theirs.Round(time.Millisecond).String(), ratio(float64(ours), float64(theirs)))
	return nil
}

func took(do func() error) (time.Duration, error) {
	begun := time.Now()
	err := do()
	return time.Since(begun), err
}

// replicate brings a version to all members, and waits until the Replicator says that it is there.
func (r *replication) replicate(ctx context.Context, version string) error {
	all, err := manifests("bench", version)
	if err != nil {
		return err
	}
	u := r.replicator()
	spec := map[string]any{"manifests": all, "clusters": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{targetLabel: labelled}}}}
	if err := unstructured.SetNestedField(u.Object, spec, "spec"); err != nil {
		return err
	}
	if err := r.cp.Client().Patch(ctx, u, client.Apply, client.FieldOwner("bench"), client.ForceOwnership); err != nil { //nolint:staticcheck // there is no apply configuration of the kind
		return err
	}
	generation := u.GetGeneration()
	return until(ctx, func() (bool, error) {
		if err := r.cp.Client().Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return false, err
		}
		observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		synced, _, _ := unstructured.NestedInt64(u.Object, "status", "synced")
		return observed == generation && synced == int64(r.members), nil
	})
}

// apply does the same by kubectl.
func (r *replication) apply(ctx context.Context, version string) error {
	all, err := manifests("kubectl", version)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": all})
	if err == nil {
		err = os.WriteFile(r.file("objects.json"), text, 0o600)
	}
	if err != nil {
		return err
	}
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	return eachOf(ctx, r.members, kubectls, func(ctx context.Context, i int) error {
		cmd := exec.CommandContext(ctx, kubectl, "--kubeconfig", r.file(memberName(i)), "--namespace", disguised, //nolint:gosec // as users run it
			"apply", "--server-side", "--filename", r.file("objects.json"))
		cmd.Env = append(os.Environ(), "HOME="+r.folder) // where it keeps what servers have
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl apply: %w\n%s", err, output)
		}
		return nil
	})
}

// status returns how large the largest object is that says what came of it, and how many there are.
func (r *replication) status(ctx context.Context) (largest, count int, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("dependents.fleet-runtime.dev/v1alpha1")
	list.SetKind("DependentSliceList")
	u := r.replicator()
	err = errors.Join(r.cp.Client().List(ctx, list, client.InNamespace(disguised)), r.cp.Client().Get(ctx, client.ObjectKeyFromObject(u), u))
	if err != nil {
		return 0, 0, err
	}
	for _, item := range append(list.Items, *u) {
		text, err := item.MarshalJSON()
		if err != nil {
			return 0, 0, err
		}
		largest, count = max(largest, len(text)), count+1
	}
	return largest, count, nil
}

// quiet counts writes of a minute, once there was none for a while: events and slices are written late.
func (r *replication) quiet(ctx context.Context) (int64, error) {
	progressf("counting writes for a minute")
	for before := int64(-1); before != r.disguise.writes.Load(); {
		before = r.disguise.writes.Load()
		if err := pause(ctx, 10*time.Second); err != nil {
			return 0, err
		}
	}
	before := r.disguise.writes.Load()
	err := pause(ctx, time.Minute)
	return r.disguise.writes.Load() - before, err
}

// stop ends the replicator, and says what it has used.
func (r *replication) stop(t *table) error {
	var cpu time.Duration
	var memory int64
	for _, p := range r.replicas {
		err := p.Process.Signal(syscall.SIGTERM)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			return fmt.Errorf("ending the replicator: %w", err)
		}
		cpu += p.ProcessState.UserTime() + p.ProcessState.SystemTime()
		if used, ok := p.ProcessState.SysUsage().(*syscall.Rusage); ok {
			memory = max(memory, used.Maxrss)
		}
	}
	t.add("CPU of the replicator for all of it", cpu.Round(100*time.Millisecond).String())
	t.add("its largest resident memory, of a process", fmt.Sprintf("%d MB", memory>>10))
	r.replicas = nil
	return nil
}

// until looks until something is so.
func until(ctx context.Context, so func() (bool, error)) error {
	for {
		is, err := so()
		if is || err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func moduleFolder(ctx context.Context) (string, error) {
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the folder of this module, inside of which the benchmarks are run: %w", err)
	}
	return strings.TrimSpace(string(module)), nil
}
