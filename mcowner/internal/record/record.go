// Package record is what an owner has in its metadata about its dependents: a finalizer, and in which clusters there may be
// some.
package record

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Keys are where an owner has the record of a controller: a finalizer, an annotation with the names of clusters, one with
// their identities, one with kinds, one that says that a cluster was given up, one that says which slices there are, and one that says where
// a rollout has failed. Another controller on the same owners has keys of its own.
type Keys struct{ Finalizer, Clusters, Identities, Kinds, GivenUp, Slices, Failures string }

// NewKeys returns the keys of a controller.
func NewKeys(fleet, controller string) Keys {
	domain := controller + "." + fleet + ".fleet-runtime.dev/"
	return Keys{
		domain + "dependents", domain + "placed-in", domain + "identities", domain + "kinds", domain + "given-up", domain + "slices", domain + "failed-in",
	}
}

// Record says where an owner may have dependents. A cluster is in it from before the first dependent is created there until
// the last one is known to be gone, or on its way, or the cluster was given up.
type Record struct {
	Sites []Site
	// Kinds are those that were desired, and of which there may be some left.
	Kinds []schema.GroupVersionKind
	// Crowded says that somebody has written more kinds than [MostKinds]: Kinds lacks some, of which there may be dependents.
	Crowded bool
	// GivenUp says that dependents may have been left in clusters that are not in the record any more.
	GivenUp bool
	// Nonsense says that somebody has written what cannot be read in place of the clusters: there may be dependents anywhere.
	Nonsense bool
	// Slices says which slices have clusters besides those in Sites, nil if none have, see [Book].
	Slices *Slices
	// Failures says where a rollout has failed, nil if it has not.
	Failures *Failures
}

// Slices says where the slices of an owner are, and which there are at least.
type Slices struct {
	Namespace string `json:"namespace"`
	Numbers   []int  `json:"numbers,omitempty"`
}

// Site is a cluster in which an owner may have dependents: what it is called, and which it is, if that is known.
type Site struct {
	Name     mcreconcile.ClusterName
	Identity types.UID
}

// MostSites is how many clusters of one name an owner knows. A name can be led to as many as somebody likes, and what an owner
// can note is bounded.
const MostSites = 16

// MostKinds is how many kinds an owner can note. Each costs requests in each of its clusters, and whoever may edit an owner may note
// any.
const MostKinds = 256

// IsKind reports whether a kind can be noted. API servers take no other names for kinds, versions and groups.
func IsKind(kind schema.GroupVersionKind) bool {
	names := append(validation.IsDNS1035Label(strings.ToLower(kind.Kind)), validation.IsDNS1035Label(kind.Version)...)
	if kind.Group != "" {
		names = append(names, validation.IsDNS1123Subdomain(kind.Group)...)
	}
	return len(names) == 0
}

// MostName is how long the name of a cluster may be, in bytes: fleet.MaxNameLength, since members alone are noted.
const MostName = 63 + 1 + 253

// longestIdentity is that of an identity in a record, in bytes. Package mcmanager makes none that is longer.
const longestIdentity = 64

// IsName reports whether a cluster may be called so.
func IsName(name mcreconcile.ClusterName) bool { return len(name) <= MostName }

// sitesOf returns the clusters of a name that have these identities. Those that cannot be read are not known, and the last of
// too many are taken.
func sitesOf(name mcreconcile.ClusterName, identities []types.UID) (sites []Site) {
	for _, identity := range identities {
		if identity != "" && len(identity) <= longestIdentity {
			sites = append(sites, Site{name, identity})
		}
	}
	if len(sites) == 0 {
		return []Site{{Name: name}}
	}
	return sites[max(0, len(sites)-MostSites):]
}

// IsNoted reports whether a cluster as it is now is among those of its name in which the owner may have dependents. Where it
// is not known which it is, its name counts.
func (s Site) IsNoted(named []Site) bool {
	return slices.Contains(named, s) || s.Identity == "" && len(named) > 0
}

// ByName returns the clusters that have each name: more than one if the name has led to several in turn, the oldest first.
func ByName(sites []Site) map[mcreconcile.ClusterName][]Site {
	named := make(map[mcreconcile.ClusterName][]Site, len(sites))
	for _, s := range sites {
		named[s.Name] = append(named[s.Name], s)
	}
	return named
}

// Names returns the names of clusters, ordered, each once.
func Names(sites []Site) []mcreconcile.ClusterName {
	names := make([]mcreconcile.ClusterName, len(sites))
	for i, s := range sites {
		names[i] = s.Name
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Has reports whether a cluster of this name is in the record.
func (r Record) Has(name mcreconcile.ClusterName) bool {
	return slices.ContainsFunc(r.Sites, func(s Site) bool { return s.Name == name })
}

// IsOpen reports whether slices alone can say whether there may be dependents in the named cluster.
func (r Record) IsOpen(name mcreconcile.ClusterName) bool {
	return r.Slices != nil && !r.Nonsense && !r.Has(name)
}

// Excludes reports whether it is certain that the record does not have the named cluster. One that says nothing, and was not
// given up anywhere, is no certainty.
func (r Record) Excludes(name mcreconcile.ClusterName) bool {
	return !r.Nonsense && (len(r.Sites) > 0 || r.GivenUp) && !r.Has(name)
}

// On reports whether the owner has the record.
func (k Keys) On(owner client.Object) bool {
	_, annotated := owner.GetAnnotations()[k.Clusters]
	_, sliced := owner.GetAnnotations()[k.Slices]
	return annotated || sliced || k.Holds(owner)
}

// Mentions reports whether the text of the owner's record has the name of a cluster. Then the record does not exclude it; where it does not, the
// record is to be read, which takes a millisecond with a thousand clusters.
func (k Keys) Mentions(owner client.Object, name mcreconcile.ClusterName) bool {
	names, quoted := owner.GetAnnotations()[k.Clusters], strconv.Quote(string(name))
	return strings.Contains(names, "["+quoted) || strings.Contains(names, ","+quoted) // within a name, a quote has a backslash before it
}

// Holds reports whether the owner has the finalizer.
func (k Keys) Holds(owner client.Object) bool {
	return controllerutil.ContainsFinalizer(owner, k.Finalizer)
}

// Read returns the record of an owner. Identities that cannot be read are not known, and of a name the last are read, see
// [MostSites]: somebody has written the others. Kinds that cannot be read are left out, and each is read once.
func (k Keys) Read(owner client.Object) Record {
	annotations := owner.GetAnnotations()
	r := Record{GivenUp: annotations[k.GivenUp] != ""}
	r.Kinds, r.Crowded = kindsIn(annotations[k.Kinds])
	r.Failures = failuresIn(annotations[k.Failures])
	if content, ok := annotations[k.Slices]; ok {
		r.Slices = &Slices{}
		r.Nonsense = json.Unmarshal([]byte(content), r.Slices) != nil
	}
	content, ok := annotations[k.Clusters]
	if !ok {
		return r
	}
	var names []mcreconcile.ClusterName
	if json.Unmarshal([]byte(content), &names) != nil {
		r.Nonsense = true
		return r
	}
	slices.Sort(names)
	var known map[mcreconcile.ClusterName][]types.UID
	if json.Unmarshal([]byte(annotations[k.Identities]), &known) != nil {
		known = nil
	}
	for _, name := range slices.Compact(names) {
		if !IsName(name) {
			r.Nonsense = true
			continue
		}
		r.Sites = append(r.Sites, sitesOf(name, known[name])...)
	}
	return r
}

// Write changes the owner's metadata: it has the record, and keeps the finalizer if held. Without the finalizer, all that it has of the
// record is that clusters were given up: the owner may be the controller's again.
func (k Keys) Write(owner client.Object, r Record, held bool) {
	if held {
		controllerutil.AddFinalizer(owner, k.Finalizer)
	} else {
		controllerutil.RemoveFinalizer(owner, k.Finalizer)
		r = Record{GivenUp: r.GivenUp}
	}
	known := map[mcreconcile.ClusterName][]types.UID{}
	for _, s := range r.Sites {
		if s.Identity != "" && !slices.Contains(known[s.Name], s.Identity) {
			known[s.Name] = append(known[s.Name], s.Identity)
		}
	}
	names := Names(r.Sites)
	annotations := maps.Clone(owner.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	put(annotations, k.Clusters, asJSON(names), len(names) > 0)
	put(annotations, k.Identities, asJSON(known), len(known) > 0)
	put(annotations, k.Kinds, kindsText(r.Kinds), len(r.Kinds) > 0)
	put(annotations, k.GivenUp, "true", r.GivenUp)
	put(annotations, k.Slices, asJSON(r.Slices), r.Slices != nil)
	put(annotations, k.Failures, asJSON(r.Failures), r.Failures != nil)
	owner.SetAnnotations(annotations)
}

// Strip takes the records of all controllers, of whatever installation, from an object that is a copy of an owner. Its labels stay.
func Strip(obj client.Object) {
	finalizers := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), isKey)
	if len(finalizers) == 0 {
		finalizers = nil // an empty list would be a field of its own
	}
	obj.SetFinalizers(finalizers)
	annotations := maps.Clone(obj.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return isKey(key) })
	obj.SetAnnotations(annotations)
}

// isKey reports whether some controller has its record there.
func isKey(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	controller, rest, _ := strings.Cut(domain, ".")
	fleet, is := strings.CutSuffix(rest, ".fleet-runtime.dev")
	k := NewKeys(fleet, controller)
	return is && slices.Contains([]string{k.Finalizer, k.Clusters, k.Identities, k.Kinds, k.GivenUp, k.Slices, k.Failures}, key)
}

func put(annotations map[string]string, key, value string, there bool) {
	if there {
		annotations[key] = value
	} else {
		delete(annotations, key)
	}
}

func asJSON(value any) string {
	content, _ := json.Marshal(value) //nolint:errchkjson // names and identities always have a JSON
	return string(content)
}

// kindsIn reads what kindsText has written, and reports whether there are more than [MostKinds].
func kindsIn(text string) (kinds []schema.GroupVersionKind, more bool) {
	seen := map[schema.GroupVersionKind]bool{}
	for text := range strings.SplitSeq(text, ",") {
		kind, _ := schema.ParseKindArg(text)
		if kind == nil || seen[*kind] || !IsKind(*kind) {
			continue
		}
		if len(kinds) == MostKinds {
			return kinds, true
		}
		seen[*kind] = true
		kinds = append(kinds, *kind)
	}
	return kinds, false
}

// kindsText writes kinds as kubectl's arguments do: Deployment.v1.apps.
func kindsText(kinds []schema.GroupVersionKind) string {
	texts := make([]string, len(kinds))
	for i, kind := range kinds {
		texts[i] = kind.Kind + "." + kind.Version + "." + kind.Group
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ",")
}

// Changed returns a copy of the owner whose metadata was changed, nil if it is as it was.
func Changed(owner client.Object, change func(client.Object)) client.Object {
	changed := owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	change(changed)
	if sameMetadata(owner, changed) {
		return nil
	}
	return changed
}

func sameMetadata(a, b client.Object) bool {
	return maps.Equal(a.GetAnnotations(), b.GetAnnotations()) && slices.Equal(a.GetFinalizers(), b.GetFinalizers())
}
