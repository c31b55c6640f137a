package main

import (
	"context"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

// start runs the program until stop is called.
func (s *spread) start(ctx context.Context) (stop func() error, err error) {
	mgr, err := mcmanager.New(s.requests.count(s.cp.Config(), ""), s.provider(), mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: ptr.To(time.Minute),
		Controller: config.Controller{SkipNameValidation: new(true)},
	}, func(o *fleet.Options) {
		o.ClusterOptions = func(m fleet.Member) []cluster.Option {
			return []cluster.Option{func(o *cluster.Options) {
				o.Cache.DefaultNamespaces = map[string]cache.Config{string(m.Name): {}}
			}}
		}
	})
	s.swept = s.requests.lists.Load() + int64(len(s.kinds())*s.targets)
	if err == nil {
		err = s.reconciler().SetupWithManager(mgr)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() error {
		cancel()
		return <-done
	}, nil
}

func (s *spread) provider() fleet.Provider {
	if s.virtual {
		return namespaces.Provider{Selector: labels.SelectorFromSet(labels.Set{targetLabel: ""})}
	}
	return fleet.NewProvider("targets", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		for i := range s.targets {
			if err := members.Set(fleet.Member{Name: fleet.ClusterName(s.target(i)), Config: s.requests.count(s.cp.Config(), s.target(i))}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

func (s *spread) kinds() []client.Object {
	return append([]client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &corev1.ServiceAccount{}, &appsv1.Deployment{}}, s.more...)
}

func (s *spread) reconciler() *dependents.Reconciler[*corev1.ConfigMap] {
	return &dependents.Reconciler[*corev1.ConfigMap]{
		Fleet: "payments", Name: "spread", OwnersIn: mcowner.Clusters{Local: true}, StateNamespace: metav1.NamespaceDefault,
		Kinds: s.kinds(), Slices: &dependents.Slices{},
		Targets: func(_ context.Context, owner *corev1.ConfigMap) ([]fleet.ClusterName, error) {
			if owner.Name != benchOwner || owner.Labels["virtual"] != strconv.FormatBool(s.virtual) {
				return nil, nil
			}
			names := make([]fleet.ClusterName, s.targets)
			for i := range names {
				names[i] = fleet.ClusterName(s.target(i))
			}
			return names, nil
		},
		Desired: func(_ context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			return fiveOf(owner, string(target.Cluster)), nil
		},
		Status: func(_ context.Context, _ *corev1.ConfigMap, results []dependents.Result) error {
			s.see(results)
			return nil
		},
	}
}

// fiveOf returns an object of each kind.
func fiveOf(owner *corev1.ConfigMap, namespace string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: benchOwner, Labels: map[string]string{versionKey: owner.Data[versionKey]}}
	app := map[string]string{"app": benchOwner}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: owner.Data}, // alone has the note
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{versionKey: []byte(owner.Data[versionKey])}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: app, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}},
		&corev1.ServiceAccount{ObjectMeta: meta},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image:" + owner.Data[versionKey]}}},
			},
		}},
	}
}

// see notes when all targets are as they are to be.
func (s *spread) see(results []dependents.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reached == nil || len(results) < s.targets {
		return
	}
	for _, r := range results {
		there := r.Dependents()
		if r.Err != nil || len(there) < 5 {
			return
		}
		for _, obj := range there {
			if cm, ok := obj.(*corev1.ConfigMap); obj.GetLabels()[versionKey] != s.is.version || ok && cm.Data[noteKey] != s.is.note {
				return
			}
		}
	}
	close(s.reached)
	s.reached = nil
}
