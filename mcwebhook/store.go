package mcwebhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

// AnnotationRotate on the Secret begins a rotation, whatever its value is. It is taken off when that begins.
const AnnotationRotate = "webhooks.fleet-runtime.dev/rotate"

// secretSuffix follows [Options.Name] in the name of the Secret.
const secretSuffix = "-webhooks"

// store has the material of the one Secret that all replicas share, as the watch of this replica brings it.
type store struct {
	cache.Cache

	key    client.ObjectKey
	writer client.Client
	log    logr.Logger
	now    atomic.Pointer[material] // nil until there is some

	mu   sync.Mutex // guards tell
	tell []func()   // are called when there is other material
}

func newStore(mgr mcmanager.Manager, opts Options) (*store, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: opts.Namespace, Name: opts.Name + secretSuffix}
	watched, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{key.Namespace: {}}, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name),
		}},
	})
	if err != nil {
		return nil, err
	}
	writer, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	s := &store{Cache: watched, key: key, writer: writer, log: mgr.GetLogger().WithName("webhooks")}
	informer, err := watched.GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{ // one that was deleted is made again
		AddFunc: s.seen, UpdateFunc: func(_, now any) { s.seen(now) },
	})
	return s, err
}

// GetCache tells the manager to start it with its own cache.
func (s *store) GetCache() cache.Cache { return s.Cache }

// seen takes over what a Secret holds.
func (s *store) seen(obj any) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	m, err := parse(secret.Data)
	if err != nil {
		s.log.Info("The Secret with the keys of webhooks cannot be used", "secret", s.key.String(), "error", err.Error())
		return
	}
	s.now.Store(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tell := range s.tell {
		tell()
	}
}

// follow calls tell, which must not wait, whenever there is other material.
func (s *store) follow(tell func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = append(s.tell, tell)
}

// keys returns the keys that count, none until there are some.
func (s *store) keys() [][]byte {
	if m := s.now.Load(); m != nil {
		return m.keys()
	}
	return nil
}

var errNoCertificate = errors.New("there is no certificate yet")

// certificate is tls.Config.GetCertificate.
func (s *store) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if m := s.now.Load(); m != nil && m.certificate != nil {
		return m.certificate, nil
	}
	return nil, errNoCertificate
}

// create makes the Secret. That another replica has made it is no error.
func (s *store) create(ctx context.Context, m *material) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}, Data: m.data()}
	if err := s.writer.Create(ctx, secret); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating the Secret %s, which holds the keys of webhooks: %w", s.key, err)
	}
	return nil
}

// replace changes the Secret, unless that was changed meanwhile.
func (s *store) replace(ctx context.Context, secret *corev1.Secret, m *material) error {
	secret = secret.DeepCopy()
	if phase(secret.Data[dataPhase]) == steady && m.phase == installing {
		delete(secret.Annotations, AnnotationRotate)
	}
	secret.Data = m.data()
	if err := s.writer.Update(ctx, secret); err != nil {
		return fmt.Errorf("changing the Secret %s, which holds the keys of webhooks: %w", s.key, err)
	}
	return nil
}
