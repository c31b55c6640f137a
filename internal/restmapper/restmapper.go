// Package restmapper maps the kinds and resources of a member.
package restmapper

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"sync"
	"time"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientrestmapper "k8s.io/client-go/restmapper"
)

// Mapper is a member's REST mapper. It asks for one API group at a time, when it is needed, and shares what it makes
// of the answer with every member that serves the very same: most of the memory that a cluster of controller-runtime's
// takes is for discovery documents, and they are alike in most fleets. It assumes nothing: members may differ in version
// and in their custom resource definitions.
type Mapper struct {
	ctx    context.Context //nolint:containedctx // the engagement's: the methods of a REST mapper have no context
	client rest.Interface
	shared *Groups

	mu     sync.Mutex // guards groups; nothing is asked under it
	groups map[string]*apiGroup
}

var _ meta.ResettableRESTMapper = (*Mapper)(nil)

// apiGroup maps the kinds and resources of one group. It is immutable.
type apiGroup struct {
	meta.RESTMapper

	served bool // it has a version
}

// discoveryTimeout bounds one request for a discovery document.
const discoveryTimeout = 10 * time.Second

// New returns the mapper of the server of a config. What it asks ends with ctx, as the methods of a REST mapper have none.
func New(ctx context.Context, cfg *rest.Config, httpClient *http.Client, shared *Groups) (*Mapper, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	return &Mapper{ctx: ctx, client: client, shared: shared, groups: map[string]*apiGroup{}}, nil
}

// KindFor implements meta.RESTMapper.
func (m *Mapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return find(m, resource.Group, func(g *apiGroup) (schema.GroupVersionKind, error) { return g.KindFor(resource) })
}

// KindsFor implements meta.RESTMapper.
func (m *Mapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return find(m, resource.Group, func(g *apiGroup) ([]schema.GroupVersionKind, error) { return g.KindsFor(resource) })
}

// ResourceFor implements meta.RESTMapper.
func (m *Mapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return find(m, input.Group, func(g *apiGroup) (schema.GroupVersionResource, error) { return g.ResourceFor(input) })
}

// ResourcesFor implements meta.RESTMapper.
func (m *Mapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return find(m, input.Group, func(g *apiGroup) ([]schema.GroupVersionResource, error) { return g.ResourcesFor(input) })
}

// RESTMapping implements meta.RESTMapper.
func (m *Mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return find(m, gk.Group, func(g *apiGroup) (*meta.RESTMapping, error) { return g.RESTMapping(gk, versions...) })
}

// RESTMappings implements meta.RESTMapper.
func (m *Mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return find(m, gk.Group, func(g *apiGroup) ([]*meta.RESTMapping, error) { return g.RESTMappings(gk, versions...) })
}

// ResourceSingularizer implements meta.RESTMapper. Like controller-runtime's, it knows the groups that were used.
func (m *Mapper) ResourceSingularizer(resource string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.groups {
		if singular, err := g.ResourceSingularizer(resource); err == nil && singular != "" && singular != resource {
			return singular, nil
		}
	}
	return resource, nil
}

// Reset implements meta.ResettableRESTMapper: every group is asked for again when it is needed.
func (m *Mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups = map[string]*apiGroup{}
}

// find looks in a group, and asks the API server for the group if it is not known, or knows no answer: a custom resource
// definition may have been installed since.
func find[T any](m *Mapper, group string, look func(*apiGroup) (T, error)) (T, error) {
	m.mu.Lock()
	known := m.groups[group]
	m.mu.Unlock()
	if known != nil {
		if found, err := look(known); !meta.IsNoMatchError(err) {
			return found, err
		}
	}
	loaded, err := m.load(group)
	if err != nil {
		var none T
		return none, err
	}
	m.keep(group, loaded)
	return look(loaded)
}

// keep keeps a group for the next look, unless it is not served: it is asked for again then in any case, and there may be any number of
// names of such groups.
func (m *Mapper) keep(group string, loaded *apiGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !loaded.served {
		delete(m.groups, group)
		return
	}
	m.groups[group] = loaded
}

// load asks for a group: which versions it has, and for the resources of each.
func (m *Mapper) load(group string) (*apiGroup, error) {
	ctx, cancel := context.WithTimeout(m.ctx, discoveryTimeout)
	defer cancel()
	versions, err := m.versions(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("asking which versions API group %q has: %w", group, err)
	}
	documents := make(map[string][]byte, len(versions.Versions))
	for _, v := range versions.Versions {
		document, err := m.client.Get().AbsPath(rootOf(group), group, v.Version).SetHeader("Accept", discoveryFormats).DoRaw(ctx)
		if apierrors.IsNotFound(err) {
			continue // it was removed this very moment
		}
		if err != nil {
			return nil, fmt.Errorf("asking for the resources of %s: %w", v.GroupVersion, err)
		}
		documents[v.Version] = document
	}
	return m.shared.get(versions, documents)
}

// discoveryFormats are those in which documents are wanted. Every API server of Kubernetes' own has the first, which takes less
// than half of the other's place: connections keep buffers for the largest answer that they have seen.
const discoveryFormats = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

// parse reads a document of either format. What is neither, or something else, is an error: a document without resources
// would say that the kinds are not served.
func parse(document []byte, into runtime.Object) error {
	decoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	if ok, _, err := decoder.RecognizesData(document); err != nil || !ok {
		return errors.Join(err, json.Unmarshal(document, into))
	}
	decoded, gvk, err := decoder.Decode(document, nil, into)
	if err == nil && decoded != into {
		err = fmt.Errorf("the document is a %v", gvk)
	}
	return err
}

func rootOf(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis"
}

// versions asks for the versions of a group. A group that is not served has none.
func (m *Mapper) versions(ctx context.Context, group string) (metav1.APIGroup, error) {
	document, err := m.client.Get().AbsPath(rootOf(group), group).SetHeader("Accept", discoveryFormats).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return metav1.APIGroup{Name: group}, nil
	}
	if err != nil {
		return metav1.APIGroup{}, err
	}
	if group != "" {
		var out metav1.APIGroup
		return out, parse(document, &out)
	}
	var legacy metav1.APIVersions
	if err := parse(document, &legacy); err != nil {
		return metav1.APIGroup{}, err
	}
	if len(legacy.Versions) == 0 {
		return metav1.APIGroup{}, errors.New("the API server names no version")
	}
	out := metav1.APIGroup{}
	for _, v := range legacy.Versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v, Version: v})
	}
	out.PreferredVersion = out.Versions[0]
	return out, nil
}

// Groups holds each different group that some member serves, once, for as long as one does. The zero value is
// empty. It is safe for concurrent use.
type Groups struct {
	mu     sync.Mutex // guards groups
	groups map[[sha256.Size]byte]weak.Pointer[apiGroup]
}

// get returns the group that is made of these documents.
func (s *Groups) get(versions metav1.APIGroup, documents map[string][]byte) (*apiGroup, error) {
	key := contentKey(versions, documents)
	s.mu.Lock()
	defer s.mu.Unlock()
	if existing := s.groups[key].Value(); existing != nil {
		return existing, nil
	}
	made, err := newAPIGroup(versions, documents)
	if err != nil {
		return nil, err
	}
	if s.groups == nil {
		s.groups = map[[sha256.Size]byte]weak.Pointer[apiGroup]{}
	}
	s.groups[key] = weak.Make(made)
	goruntime.AddCleanup(made, s.forget, key)
	return made, nil
}

// forget drops a group that no member uses any more, unless an equal one has taken its place.
func (s *Groups) forget(key [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[key].Value() == nil {
		delete(s.groups, key)
	}
}

// contentKey tells documents apart. Of the group's own it counts the names and order of the versions alone: it also has
// the server's addresses.
func contentKey(versions metav1.APIGroup, documents map[string][]byte) [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %q", versions.Name, versions.PreferredVersion.Version)
	for _, v := range versions.Versions {
		_, _ = fmt.Fprintf(h, " %q %d ", v.Version, len(documents[v.Version]))
		_, _ = h.Write(documents[v.Version])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func newAPIGroup(versions metav1.APIGroup, documents map[string][]byte) (*apiGroup, error) {
	resources := make(map[string][]metav1.APIResource, len(documents))
	for version, document := range documents {
		var list metav1.APIResourceList
		if err := parse(document, &list); err != nil {
			return nil, fmt.Errorf("reading the resources of %s/%s: %w", versions.Name, version, err)
		}
		resources[version] = list.APIResources
	}
	mapper := clientrestmapper.NewDiscoveryRESTMapper([]*clientrestmapper.APIGroupResources{{Group: versions, VersionedResources: resources}})
	return &apiGroup{RESTMapper: mapper, served: len(versions.Versions) > 0}, nil
}
