package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// Format is a convention for objects that name Secrets: which objects, and where they lead. Those of others, such as
// [Flux], can be changed, and a program can have its own.
type Format struct {
	// Kinds are the kinds of the objects, each in the version that the server prefers. A kind that is not served yet is
	// waited for. Several need PerSecret. Required.
	Kinds []schema.GroupKind

	// Selector says which objects of the kinds have the format.
	// Default: all.
	Selector labels.Selector

	// ClusterScoped says that the objects have no namespaces.
	ClusterScoped bool

	// SecretNamespaces are the namespaces into which objects may lead beside their own. Whoever may write objects can then
	// have every Secret there used. They cannot read it, unless the format has a [Cluster]: the token goes to the server
	// that the object says. Required for objects without namespaces.
	// Default: none.
	SecretNamespaces []string

	// PerSecret makes all objects that name the same Secret one member, which has the name and the labels of the Secret. It
	// is for objects of which many are for one cluster. What they say beside the name of the Secret must be the same then.
	// Default: each object is a member.
	PerSecret bool

	// Read returns where an object leads; one that names no Secret leads nowhere, and is no member. An error says why an
	// object leads to a cluster in a way that cannot be followed. It becomes the state of the member and an event on the
	// object, and must carry no secrets; [objects.Waiting] makes one without an event. What objects hold comes from others:
	// fields may be missing, or of any type. Read may be called concurrently, and must not change the object. Required.
	Read func(obj *unstructured.Unstructured) (Reference, error)
}

// Reference is where an object leads.
type Reference struct {
	// Secret is the Secret with the credentials. An empty namespace stands for that of the object.
	Secret client.ObjectKey

	// Keys are the keys in the Secret that may hold the kubeconfig: the first that there is counts.
	// Default: the only key of the Secret.
	Keys []string

	// Part tells clusters apart that share a Secret, such as by the key. It is the end of the member's name, after a "/", and
	// has the characters that keys of Secrets have. It is for [Format.PerSecret] alone.
	// Default: a Secret is for one cluster.
	Part string

	// Cluster is for Secrets with a token in the place of a kubeconfig. Keys has no meaning then.
	// Default: the Secret holds a kubeconfig.
	Cluster *Cluster
}

// Cluster says how a cluster is reached to which the Secret has a token only.
type Cluster struct {
	// Server is the address of the API server: a URL, or a host, with or without a port. Required.
	Server string

	// ProxyURL is the URL of the proxy on the way there.
	// Default: the proxy that the environment of the manager says.
	ProxyURL string

	// InsecureSkipTLSVerify says that the server's certificate is not checked, and CAKey not read. [kubeconfig.Allow] must
	// allow it.
	InsecureSkipTLSVerify bool

	// TokenKey is the key of the token in the Secret. Required.
	TokenKey string

	// CAKey is the key of the certificates by which the server is known, in PEM.
	// Default: those of the manager's host.
	CAKey string
}

// Reasons of members that cannot be reached.
const (
	// ReasonNoSecret is for an object that does not name a Secret yet, or one that does not exist.
	ReasonNoSecret = "NoSecret"
	// ReasonNoKey is for a Secret without the key that is to hold the kubeconfig or the token.
	ReasonNoKey = "NoKey"
	// ReasonSecretsUnreadable is for an object of which it is not known whether its Secret exists: the server has not listed
	// the Secrets yet, or the manager has no right to that.
	ReasonSecretsUnreadable = "SecretsUnreadable"
	// ReasonOtherAccess is for an object that leads to its cluster by other means than a Secret.
	ReasonOtherAccess = "OtherAccess"
	// ReasonInvalidReference is for an object that says something else than the name of a Secret where that should be.
	ReasonInvalidReference = "InvalidReference"
	// ReasonRefusedReference is for an object that leads into a namespace into which it may not lead.
	ReasonRefusedReference = "RefusedReference"
)

// Error says why it is not followed where an object leads.
type Error struct{ reason, message string }

// Error implements error.
func (e *Error) Error() string { return e.message }

// Reason returns [ReasonInvalidReference] or [ReasonRefusedReference].
func (e *Error) Reason() string { return e.reason }

func invalid(format string, args ...any) *Error {
	return &Error{ReasonInvalidReference, fmt.Sprintf(format, args...)}
}

// Limits of what objects may say.
const (
	maxKeys    = 16
	maxAddress = 2048 // bytes
	maxShown   = 80   // bytes of an object's text in a message
	maxCause   = 300  // bytes of another's error in a message
)

// shown makes what an object says fit to be shown.
func shown(text string) string { return fmt.Sprintf("%q", oneline.Text(text, maxShown)) }

// validate returns an error for what cannot be the name or the key of a Secret, or an address.
func (r Reference) validate() error {
	if len(validation.IsDNS1123Subdomain(r.Secret.Name)) > 0 {
		return invalid("%s cannot be the name of a Secret", shown(r.Secret.Name))
	}
	if r.Secret.Namespace != "" && len(validation.IsDNS1123Label(r.Secret.Namespace)) > 0 {
		return invalid("%s cannot be the namespace of a Secret", shown(r.Secret.Namespace))
	}
	if len(r.Keys) > maxKeys {
		return invalid("the object names %d keys of a Secret, %d are allowed", len(r.Keys), maxKeys)
	}
	keys := r.Keys
	if r.Part != "" {
		keys = append(slices.Clip(keys), r.Part)
	}
	if c := r.Cluster; c != nil {
		keys = append(slices.Clip(keys), c.TokenKey, cmp.Or(c.CAKey, c.TokenKey))
		if len(c.Server) > maxAddress || len(c.ProxyURL) > maxAddress {
			return invalid("an address has more than %d bytes", maxAddress)
		}
	}
	for _, key := range keys {
		if len(validation.IsConfigMapKey(key)) > 0 {
			return invalid("%s cannot be a key of a Secret", shown(key))
		}
	}
	return nil
}

// Fields say where objects name their Secrets: by fields of text, whose names are joined by dots, as in
// spec.secretRef.name. Its method Read is for [Format.Read].
type Fields struct {
	// SecretName is the field with the name of the Secret. Required.
	SecretName string

	// SecretNamespace is the field with the namespace of the Secret.
	// Default: the Secret is in the namespace of the object.
	SecretNamespace string

	// Key is the field with the key of the kubeconfig.
	// Default: Keys say it.
	Key string

	// Keys are the keys of the kubeconfig where the field Key is not set: the first that the Secret has counts.
	// Default: the only key of the Secret.
	Keys []string
}

// Read returns where an object leads by its fields.
func (f Fields) Read(obj *unstructured.Unstructured) (Reference, error) {
	r := reader{content: obj.Object}
	ref := Reference{Secret: client.ObjectKey{Name: r.text(f.SecretName)}, Keys: f.Keys}
	if f.SecretNamespace != "" {
		ref.Secret.Namespace = r.text(f.SecretNamespace)
	}
	if f.Key != "" {
		if key := r.text(f.Key); key != "" {
			ref.Keys = []string{key}
		}
	}
	return ref, r.err
}

// reader reads fields of an object, and keeps the first error.
type reader struct {
	content map[string]any
	err     error
}

// text returns the text in a field, and "" if there is none.
func (r *reader) text(path string) string {
	text, ok := r.field(path).(string)
	if !ok && r.field(path) != nil {
		r.wrong(path, "text")
	}
	return text
}

// yes reports whether a field is true.
func (r *reader) yes(path string) bool {
	yes, ok := r.field(path).(bool)
	if !ok && r.field(path) != nil {
		r.wrong(path, "true or false")
	}
	return yes
}

// has reports whether a field is set.
func (r *reader) has(path string) bool { return r.field(path) != nil }

func (r *reader) wrong(path, want string) {
	if r.err == nil {
		r.err = invalid("the field %s must be %s", path, want)
	}
}

// field returns what is in a field, or nil. Nothing is in the fields of what is no object.
func (r *reader) field(path string) any {
	var at any = r.content
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := at.(map[string]any)
		at = fields[name]
	}
	return at
}
