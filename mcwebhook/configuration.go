package mcwebhook

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	validating = "ValidatingWebhookConfiguration"
	mutating   = "MutatingWebhookConfiguration"

	defaultTimeoutSeconds = 5
	maxTimeoutSeconds     = 30
)

// Parse reads ValidatingWebhookConfigurations and MutatingWebhookConfigurations from YAML, such as the file
// config/webhook/manifests.yaml that controller-gen writes.
func Parse(manifests []byte) (configurations []client.Object, err error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			return configurations, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading configurations of webhooks: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		obj, err := newConfiguration(u.GetKind())
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, obj, true); err != nil {
			return nil, fmt.Errorf("reading the %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		configurations = append(configurations, obj)
	}
}

func newConfiguration(kind string) (client.Object, error) {
	switch kind {
	case validating:
		return &admissionregistrationv1.ValidatingWebhookConfiguration{}, nil
	case mutating:
		return &admissionregistrationv1.MutatingWebhookConfiguration{}, nil
	}
	return nil, fmt.Errorf("there is an object of the kind %q among configurations of webhooks: only %s and %s are such", kind, validating, mutating)
}

// hook is one webhook, as all members get it but for where it is.
type hook struct {
	path   string
	fields map[string]any
}

// kind is one of the two kinds of configurations, with its webhooks.
type kind struct {
	schema.GroupVersionKind

	hooks []hook
}

// object returns the configuration of a name, empty.
func (k *kind) object(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.GroupVersionKind)
	u.SetName(name)
	return u
}

// watched returns what stands for the kind in a watch of metadata.
func (k *kind) watched() client.Object {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(k.GroupVersionKind)
	return m
}

// takeKinds takes the configurations of the options, each webhook with its defaults.
func takeKinds(opts Options) ([]*kind, error) {
	of := map[string]*kind{}
	names := map[string]bool{}
	for _, name := range []string{validating, mutating} {
		of[name] = &kind{GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind(name)}
	}
	take := func(name string, reinvocation *admissionregistrationv1.ReinvocationPolicyType, w admissionregistrationv1.ValidatingWebhook) error {
		if names[name+w.Name] {
			return fmt.Errorf("two webhooks of the kind %s are called %s", name, w.Name)
		}
		names[name+w.Name] = true
		h, err := newHook(w, opts.AllowFailForCoreGroups)
		if err != nil {
			return fmt.Errorf("the webhook %s: %w", w.Name, err)
		}
		if reinvocation != nil {
			h.fields["reinvocationPolicy"] = string(*reinvocation)
		}
		of[name].hooks = append(of[name].hooks, h)
		return nil
	}
	for _, obj := range opts.Configurations {
		if err := eachWebhook(obj, take); err != nil {
			return nil, err
		}
	}
	return []*kind{of[validating], of[mutating]}, nil // one without webhooks is removed, where an earlier version had some
}

// eachWebhook calls take for each webhook of a configuration. What a mutating one has beyond a validating one is the reinvocation.
func eachWebhook(obj client.Object, take func(string, *admissionregistrationv1.ReinvocationPolicyType, admissionregistrationv1.ValidatingWebhook) error) error {
	switch c := obj.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			if err := take(validating, nil, *c.Webhooks[i].DeepCopy()); err != nil {
				return err
			}
		}
		return nil
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := c.Webhooks[i].DeepCopy()
			if w.ReinvocationPolicy == nil {
				w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
			}
			if err := take(mutating, w.ReinvocationPolicy, admissionregistrationv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			}); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("Options.Configurations: %T is no configuration of webhooks", obj)
}

// newHook returns a webhook with all that an API server would add, so that what others change in it is noticed.
func newHook(w admissionregistrationv1.ValidatingWebhook, failForCore bool) (hook, error) {
	service := w.ClientConfig.Service
	if service == nil || service.Path == nil || !strings.HasPrefix(*service.Path, "/") {
		return hook{}, errors.New("its clientConfig.service.path does not name the path at which it is registered")
	}
	if w.SideEffects == nil {
		return hook{}, errors.New("it does not say its sideEffects")
	}
	setDefaults(&w)
	if err := validate(&w); err != nil {
		return hook{}, err
	}
	if *w.FailurePolicy == admissionregistrationv1.Fail && !failForCore && slices.ContainsFunc(w.Rules, isOfCore) {
		return hook{}, errors.New("its failurePolicy is Fail for kinds of Kubernetes itself, or for all groups: " +
			"set Ignore, or Options.AllowFailForCoreGroups, which says what that means")
	}
	w.ClientConfig = admissionregistrationv1.WebhookClientConfig{}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&w)
	return hook{*service.Path, fields}, err
}

// validate returns an error for what API servers refuse, which would keep all other webhooks of the kind out of members too.
func validate(w *admissionregistrationv1.ValidatingWebhook) error {
	if wrong := validation.IsFullyQualifiedName(field.NewPath("name"), w.Name); len(wrong) > 0 {
		return wrong.ToAggregate()
	}
	if effects := *w.SideEffects; effects != admissionregistrationv1.SideEffectClassNone && effects != admissionregistrationv1.SideEffectClassNoneOnDryRun {
		return fmt.Errorf("its sideEffects are %s: API servers accept None and NoneOnDryRun", effects)
	}
	if seconds := *w.TimeoutSeconds; seconds < 1 || seconds > maxTimeoutSeconds {
		return fmt.Errorf("its timeoutSeconds are %d: API servers accept 1 to %d", seconds, maxTimeoutSeconds)
	}
	return nil
}

func setDefaults(w *admissionregistrationv1.ValidatingWebhook) {
	setIfNil(&w.FailurePolicy, admissionregistrationv1.Ignore)
	setIfNil(&w.TimeoutSeconds, defaultTimeoutSeconds)
	setIfNil(&w.MatchPolicy, admissionregistrationv1.Equivalent)
	setIfNil(&w.NamespaceSelector, metav1.LabelSelector{})
	setIfNil(&w.ObjectSelector, metav1.LabelSelector{})
	if len(w.AdmissionReviewVersions) == 0 {
		w.AdmissionReviewVersions = []string{"v1"}
	}
	for i := range w.Rules {
		setIfNil(&w.Rules[i].Scope, admissionregistrationv1.AllScopes)
	}
	s := w.NamespaceSelector
	_, named := s.MatchLabels[corev1.LabelMetadataName]
	if named || slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == corev1.LabelMetadataName }) {
		return
	}
	s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem},
	})
}

func setIfNil[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}

// isOfCore reports whether a rule is about kinds of Kubernetes itself. The groups of others have dots, and do not end in k8s.io.
func isOfCore(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(r.APIGroups, func(group string) bool {
		return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
	})
}

// webhooks returns what one member is to have, of those that are registered.
func (k *kind) webhooks(registered map[string]bool, address func(path string) string, bundle []byte) []any {
	var all []any
	for _, h := range k.hooks {
		if !registered[h.path] {
			continue
		}
		at := map[string]any{"url": address(h.path)}
		if len(bundle) > 0 {
			at["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
		}
		fields := maps.Clone(h.fields)
		fields["clientConfig"] = at
		all = append(all, fields)
	}
	return all
}
