package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

const (
	// secrets is the namespace of the local cluster where the kubeconfigs are.
	secrets = "fleet"
	// memberCount is how many clusters there are beside the local one, and sharedCount how many if replicas share them.
	memberCount = 3
	sharedCount = 4
)

// stage is the setting of control planes of the demo's own.
type stage struct {
	*mctest.Fleet
	folder  string // of files with kubeconfigs, for replicas and the user of -stay
	changes int    // how many changes were made to ConfigMaps
}

func (o options) controlPlanes(ctx context.Context, screen screen) (*setting, error) {
	count := memberCount
	if o.replicas > 1 {
		count = sharedCount
	}
	screen.say(fmt.Sprintf("Starting %d clusters on this machine, an etcd and a kube-apiserver each.\n"+
		"The manager will run against the first, the local cluster.", 1+count))
	planes, err := mctest.New(ctx, mctest.Options{})
	if err != nil {
		return nil, err
	}
	st := &stage{Fleet: planes}
	if err := st.build(ctx, screen, count); err != nil {
		return nil, errors.Join(err, st.close())
	}
	s := &setting{local: planes.Local.Config(), steps: st.steps(), close: st.close}
	if o.replicas > 1 {
		if s.replicas, err = st.share(ctx, o); err != nil {
			return nil, errors.Join(err, st.close())
		}
		s.steps = st.sharedSteps(s.replicas)
	}
	if o.stay {
		err = st.writeKubeconfigs()
		s.stay = "That is all, and it goes on until Ctrl-C. To take part, from another terminal:\n" +
			"  kubectl --kubeconfig " + filepath.Join(st.folder, "member-3") + " create configmap mine"
	}
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return s, nil
}

// build starts the members, and describes the first two to the manager that is to come.
func (st *stage) build(ctx context.Context, screen screen, count int) error {
	screen.say("  " + st.Local.Name + " is ready")
	for range count {
		cp, err := st.Add(ctx)
		if err != nil {
			return err
		}
		screen.say("  " + cp.Name + " is ready")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: secrets}}
	if err := st.Local.Client().Create(ctx, namespace); err != nil {
		return err
	}
	return errors.Join(st.join(ctx, st.Members[0]), st.join(ctx, st.Members[1]))
}

// writeKubeconfigs writes a kubeconfig file for each cluster.
func (st *stage) writeKubeconfigs() (err error) {
	if st.folder != "" {
		return nil
	}
	if st.folder, err = os.MkdirTemp("", "quickstart-"); err != nil {
		return err
	}
	for _, cp := range append([]*mctest.ControlPlane{st.Local}, st.Members...) {
		if err := os.WriteFile(filepath.Join(st.folder, cp.Name), cp.Kubeconfig(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// close ends the control planes and removes all files.
func (st *stage) close() error {
	if st.folder != "" {
		return errors.Join(os.RemoveAll(st.folder), st.Close())
	}
	return st.Close()
}

// steps is the script.
func (st *stage) steps() []step {
	return []step{
		{
			say: "The manager starts. In the local cluster, two Secrets with kubeconfigs describe\n" +
				"member-1 and member-2.",
			do: func(context.Context, *scene) (condition, error) {
				return all(is("member-1", fleet.Ready), is("member-2", fleet.Ready)), nil
			},
			shown: "Two members were discovered by their Secrets.",
		},
		{
			say:   "A ConfigMap is created in both, and changed.",
			do:    st.work,
			shown: "One controller reconciled the ConfigMaps of both.",
		},
		{
			say: "member-3 joins: a Secret with its kubeconfig is created. There is a ConfigMap in\n" +
				"it already.",
			do:    st.thirdJoins,
			shown: "A third joined while the manager ran. What it held already was reconciled.",
		},
		{
			say: "The API server of member-2 is killed (kill -9). Then a ConfigMap is changed in\n" +
				"member-1.",
			do:    st.secondStops,
			shown: "member-2 was killed and became Unreachable. member-1 was served meanwhile.",
		},
		{
			say:   "The API server of member-2 is started again. Then a ConfigMap is changed there.",
			do:    st.secondReturns,
			shown: "member-2 came back, and was served again.",
		},
		{
			say:   "member-1 leaves: its Secret is deleted.",
			do:    st.firstLeaves,
			shown: "member-1 left.",
		},
		{
			say: "ConfigMaps are changed in member-1, which is no member any more, and in\n" +
				"member-3.",
			do:    st.workAfterwards,
			shown: "After that, member-1 was left alone. member-3 was served.",
		},
	}
}

func (st *stage) work(ctx context.Context, _ *scene) (condition, error) {
	return st.workIn(ctx, st.Members[:2])
}

func (st *stage) workIn(ctx context.Context, planes []*mctest.ControlPlane) (condition, error) {
	var conditions []condition
	for _, cp := range planes {
		if err := cp.Client().Create(ctx, greeting()); err != nil {
			return condition{}, err
		}
		c, err := st.change(ctx, cp)
		if err != nil {
			return condition{}, err
		}
		conditions = append(conditions, c)
	}
	return all(conditions...), nil
}

func (st *stage) thirdJoins(ctx context.Context, _ *scene) (condition, error) {
	held := greeting()
	if err := st.Members[2].Client().Create(ctx, held); err != nil {
		return condition{}, err
	}
	return all(is("member-3", fleet.Ready), reconciled("member-3", held)), st.join(ctx, st.Members[2])
}

func (st *stage) secondStops(ctx context.Context, _ *scene) (condition, error) {
	if err := st.Members[1].APIServer.Stop(); err != nil {
		return condition{}, err
	}
	served, err := st.change(ctx, st.Members[0])
	return all(is("member-2", fleet.Unreachable), served), err
}

func (st *stage) secondReturns(ctx context.Context, _ *scene) (condition, error) {
	if err := st.Members[1].APIServer.Restart(); err != nil {
		return condition{}, err
	}
	served, err := st.change(ctx, st.Members[1])
	return all(is("member-2", fleet.Ready), served), err
}

func (st *stage) firstLeaves(ctx context.Context, _ *scene) (condition, error) {
	return is("member-1", stateGone), st.Local.Client().Delete(ctx, secretOf(st.Members[0]))
}

func (st *stage) workAfterwards(ctx context.Context, s *scene) (condition, error) {
	var before int
	s.board.ask(func(ms members) { before = ms["member-1"].reconciles })
	if _, err := st.change(ctx, st.Members[0]); err != nil {
		return condition{}, err
	}
	served, err := st.change(ctx, st.Members[2])
	return all(served, condition{
		what:  "member-1 is left alone",
		holds: func(ms members) bool { return ms["member-1"].reconciles == before },
	}), err
}

// join makes a cluster a member.
func (st *stage) join(ctx context.Context, cp *mctest.ControlPlane) error {
	return st.Local.Client().Create(ctx, secretOf(cp))
}

func secretOf(cp *mctest.ControlPlane) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: secrets, Name: cp.Name, Labels: map[string]string{kubeconfig.Label: "true"},
		},
		Data: map[string][]byte{kubeconfig.DefaultKey: cp.Kubeconfig()},
	}
}

// greeting is a ConfigMap to be created.
func greeting() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "greeting"},
		Data:       map[string]string{"text": "Hello!"},
	}
}

// change changes the ConfigMap of a cluster, and returns the condition that this was reconciled.
func (st *stage) change(ctx context.Context, cp *mctest.ControlPlane) (condition, error) {
	st.changes++
	changed := greeting()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"changes":"`+strconv.Itoa(st.changes)+`"}}`))
	if err := cp.Client().Patch(ctx, changed, patch); err != nil {
		return condition{}, fmt.Errorf("changing a ConfigMap of %s: %w", cp.Name, err)
	}
	return reconciled(fleet.ClusterName(cp.Name), changed), nil
}
