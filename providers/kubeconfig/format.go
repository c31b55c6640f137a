package kubeconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// Format is a convention for clusters in Secrets: which Secrets, and what they say. Those of others, such as [ArgoCD],
// can be changed, and a program can have its own.
type Format struct {
	// Selectors say which Secrets have the format: those that match at least one of them. Required; labels.Everything()
	// stands for all Secrets.
	Selectors []labels.Selector

	// Members returns the members that a Secret describes. Each name need be unique only in the Secret's namespace; an
	// empty one stands for the name of the Secret. Labels are added to those of the Secret, which a member has anyway; of
	// those that begin with fleet-runtime.dev/, it has [Label] alone.
	//
	// What is wrong with one member goes into [fleet.Member.Err]. An error that wraps [objects.ErrNone] says why the
	// Secret describes no member; without one, no members mean that the Secret is for something else. After any other
	// error the members stay as they are, and Members is called again. Errors become events, and must carry no secrets.
	//
	// Members may be called for several Secrets at once. It must not wait for anything remote, nor change the Secret.
	// Required.
	Members func(secret *corev1.Secret, reading Reading) ([]fleet.Member, error)
}

// Reading says how a Secret is to be read, as the [Provider] has it. It is what [Member] asks for.
type Reading struct {
	// Context is the context of the kubeconfigs; "" stands for their current contexts.
	Context string
	// Allow says what they may do.
	Allow Allow
}

// Labelled is the format of this project and that of sigs.k8s.io/multicluster-runtime: Secrets with [Label] or
// [MulticlusterRuntimeLabel] set to "true", and a kubeconfig under [DefaultKey].
func Labelled() Format {
	return Format{
		Selectors: []labels.Selector{
			labels.SelectorFromSet(labels.Set{Label: labelTrue}),
			labels.SelectorFromSet(labels.Set{MulticlusterRuntimeLabel: labelTrue}),
		},
		Members: underKeys(DefaultKey),
	}
}

// labelTrue is the value of labels that mark Secrets.
const labelTrue = "true"

// Keyed is the format of Secrets with a kubeconfig under a key, or else under the first of others that they have.
func Keyed(selector labels.Selector, key string, others ...string) Format {
	return Format{
		Selectors: []labels.Selector{selector},
		Members:   underKeys(slices.Concat([]string{key}, others)...),
	}
}

// Flux is the format of the Secrets that Flux takes kubeconfigs from, under the key "value", or else "value.yaml". Flux
// is told the name of each Secret and marks none, so the selector is for labels of one's own.
// (https://github.com/fluxcd/pkg/blob/main/runtime/client/impersonator.go)
func Flux(selector labels.Selector) Format { return Keyed(selector, "value", "value.yaml") }

// underKeys reads the kubeconfig under the first of the keys that a Secret has.
func underKeys(keys ...string) func(*corev1.Secret, Reading) ([]fleet.Member, error) {
	return func(secret *corev1.Secret, reading Reading) ([]fleet.Member, error) {
		for _, key := range keys {
			if kubeconfig, ok := secret.Data[key]; ok {
				return []fleet.Member{Member("", kubeconfig, reading.Context, reading.Allow)}, nil
			}
		}
		quoted := make([]string, len(keys))
		for i, key := range keys {
			quoted[i] = fmt.Sprintf("%q", key)
		}
		return nil, fmt.Errorf("%w: the Secret has no key %s", objects.ErrNone, strings.Join(quoted, " or "))
	}
}

// formats are the formats of one provider.
type formats []Format

// validate returns an error that names what is missing.
func (fs formats) validate() error {
	for i, f := range fs {
		isNil := func(s labels.Selector) bool { return s == nil }
		if len(f.Selectors) == 0 || slices.ContainsFunc(f.Selectors, isNil) {
			return fmt.Errorf("providers/kubeconfig: format %d has no selector, or a nil one; use labels.Everything() for all Secrets", i)
		}
		if f.Members == nil {
			return fmt.Errorf("providers/kubeconfig: format %d has no function Members", i)
		}
	}
	return nil
}

// selectors returns the selectors of all formats.
func (fs formats) selectors() []labels.Selector {
	var all []labels.Selector
	for _, f := range fs {
		all = append(all, f.Selectors...)
	}
	return all
}

// members returns the members that a Secret describes in any of the formats that it has. If all of these say that it
// describes none, the first error says why.
func (fs formats) members(secret *corev1.Secret, reading Reading) ([]fleet.Member, error) {
	var all []fleet.Member
	var none error
	for _, f := range fs {
		matches := func(s labels.Selector) bool { return s.Matches(labels.Set(secret.Labels)) }
		if !slices.ContainsFunc(f.Selectors, matches) {
			continue
		}
		members, err := f.Members(secret, reading)
		switch {
		case err == nil:
			all = append(all, members...)
		case !errors.Is(err, objects.ErrNone):
			return nil, err
		case none == nil:
			none = err
		}
	}
	if len(all) > 0 {
		none = nil
	}
	for i := range all {
		all[i].Labels = labels.Merge(labelsOf(secret), all[i].Labels)
	}
	return all, none
}

// labelsOf returns the labels of a Secret that its members have. What else is reserved is for formats to say.
func labelsOf(secret *corev1.Secret) map[string]string {
	own := objects.Unreserved(secret.Labels)
	if value, ok := secret.Labels[Label]; ok {
		own[Label] = value
	}
	return own
}
