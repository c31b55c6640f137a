package mcwebhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

// AnnotationRotate on the Secret begins a rotation, whatever its value is. It is taken off when that begins.
const AnnotationRotate = "webhooks.fleet-runtime.dev/rotate"

// secretSuffix follows [Options.Name] in the name of the Secret.
const secretSuffix = "-webhooks"

const (
	// readPause is how long the Secret is not read again for keys that are not known here. Anybody can ask with such.
	readPause = time.Second
	// readTimeout bounds one such read, since an API server waits for it.
	readTimeout = 2 * time.Second
)

// store has the material of the one Secret that all replicas share, as the watch of this replica brings it.
type store struct {
	cache.Cache

	key    client.ObjectKey
	writer client.Client
	log    logr.Logger
	clock  clock.PassiveClock
	now    atomic.Pointer[material] // nil until there is some
	ahead  atomic.Pointer[material] // what was read and the watch has not brought yet, nil if there is none

	reads  singleflight.Group // of lookAgain
	readAt time.Time          // when the last of these ended

	mu           sync.Mutex // guards what follows, and changes of ahead
	version      string     // the resource version of what the watch has brought last
	aheadVersion string
	tell         []func() // are called when there is other material
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
	s := &store{Cache: watched, key: key, writer: writer, log: mgr.GetLogger().WithName("webhooks"), clock: clock.RealClock{}}
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
	s.version = secret.ResourceVersion
	if !isNewer(s.aheadVersion, s.version) {
		s.ahead.Store(nil)
	}
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
func (s *store) keys() (keys [][]byte) {
	for _, m := range []*material{s.now.Load(), s.ahead.Load()} {
		if m != nil {
			keys = append(keys, m.keys()...)
		}
	}
	return keys
}

// lookAgain reads the Secret, for keys that the watch has not brought yet. It does so once for all who ask meanwhile, and not
// at all where that was just done. It returns within readTimeout.
func (s *store) lookAgain(ctx context.Context) {
	_, err, _ := s.reads.Do("", func() (any, error) {
		if s.clock.Since(s.readAt) < readPause {
			return nil, nil
		}
		err := s.read(context.WithoutCancel(ctx)) // others wait for it too
		s.readAt = s.clock.Now()
		return nil, err
	})
	if err != nil {
		s.log.V(1).Info("Cannot look for a key of webhooks that is not known here", "error", err.Error())
	}
}

func (s *store) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	if err := s.writer.Get(ctx, s.key, secret); err != nil {
		return err
	}
	m, err := parse(secret.Data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if isNewer(secret.ResourceVersion, s.version) {
		s.ahead.Store(m)
		s.aheadVersion = secret.ResourceVersion
	}
	return nil
}

// isNewer compares two resource versions of the Secret. Any is newer than none.
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return version != "" && (than == "" || err == nil && order > 0)
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
