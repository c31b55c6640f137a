package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/examples/ingress-tls/pki"
)

// Annotations of Secrets that want a certificate: the first, and one of the others.
const (
	authorityAnnotation = "ingress-tls.example.com/authority" // the Secret of the authority, which is created if it is absent
	hostsAnnotation     = "ingress-tls.example.com/hosts"     // a server's, divided by commas
	clientAnnotation    = "ingress-tls.example.com/client"    // a client's name
)

// authorityType is that of Secrets that have an authority. Nobody can change the type of a Secret, so that no other one is taken for it.
const authorityType corev1.SecretType = "ingress-tls.example.com/authority"

const mostHosts = 100

// errAsked is why a Secret gets no certificate until somebody changes it.
var errAsked = errors.New("no certificate can be issued")

type controller struct {
	validity, authority time.Duration
	now                 func() time.Time

	client   client.Client
	recorder events.EventRecorder
}

func (c *controller) setUp(mgr ctrl.Manager) error {
	c.client, c.recorder = mgr.GetClient(), mgr.GetEventRecorder("ingress-tls")
	return ctrl.NewControllerManagedBy(mgr).Named("ingress-tls").
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.concerned)).
		Complete(c)
}

// concerned returns the Secrets whose certificates depend on one: itself, or all of an authority.
func (c *controller) concerned(ctx context.Context, obj client.Object) []reconcile.Request {
	if obj.GetAnnotations()[authorityAnnotation] != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
	}
	if obj.(*corev1.Secret).Type != authorityType { //nolint:forcetypeassert // what is watched
		return nil
	}
	var secrets corev1.SecretList
	if err := c.client.List(ctx, &secrets, client.InNamespace(obj.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The Secrets of an authority cannot be listed", "authority", obj.GetName())
		return nil
	}
	var all []reconcile.Request
	for i := range secrets.Items {
		if secrets.Items[i].Annotations[authorityAnnotation] == obj.GetName() {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
		}
	}
	return all
}

// Reconcile gives a Secret the certificate that it asks for, unless it has that.
func (c *controller) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := c.client.Get(ctx, req.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if secret.DeletionTimestamp != nil || secret.Annotations[authorityAnnotation] == "" {
		return ctrl.Result{}, nil
	}
	renewal, err := c.provide(ctx, secret)
	switch {
	case errors.Is(err, errAsked), apierrors.IsInvalid(err): // until somebody changes it, who reads events
		c.recorder.Eventf(secret, nil, corev1.EventTypeWarning, "NotIssued", "Issue", "%v", err)
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err): // the cache is behind
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(renewal.Sub(c.now()), time.Second)}, nil
}

// provide gives a Secret its certificate, and returns when to look again.
func (c *controller) provide(ctx context.Context, secret *corev1.Secret) (time.Time, error) {
	wanted, err := certificateOf(secret)
	if err != nil {
		return time.Time{}, err
	}
	authority, err := c.authorityOf(ctx, secret)
	if err != nil {
		return time.Time{}, err
	}
	have := pki.Pair{Certificate: secret.Data[wanted.certificate], Key: secret.Data[wanted.key]}
	renewal := wanted.renewal(authority, have)
	if !c.now().Before(renewal) {
		if have, err = wanted.issue(authority, c.now(), c.validity); err != nil {
			return time.Time{}, err
		}
		renewal = wanted.renewal(authority, have)
	}
	return slices.MinFunc([]time.Time{renewal, authority.Successor()}, time.Time.Compare), c.store(ctx, secret, wanted.data(have, authority))
}

// store writes what a Secret has to have, where it differs.
func (c *controller) store(ctx context.Context, secret *corev1.Secret, data map[string][]byte) error {
	if maps.EqualFunc(secret.Data, data, bytes.Equal) {
		return nil
	}
	changed := secret.DeepCopy()
	changed.Data = data
	if err := c.client.Update(ctx, changed); err != nil {
		return fmt.Errorf("writing the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	c.recorder.Eventf(secret, nil, corev1.EventTypeNormal, "Issued", "Issue", "It has what the authority %s has issued", secret.Annotations[authorityAnnotation])
	return nil
}

// authorityOf returns the authority that a Secret names, as it is stored. It is created, or given a successor, where that is due.
func (c *controller) authorityOf(ctx context.Context, secret *corev1.Secret) (pki.Authority, error) {
	key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Annotations[authorityAnnotation]}
	if why := validation.IsDNS1123Subdomain(key.Name); len(why) > 0 {
		return pki.Authority{}, fmt.Errorf("%w: %s is no name of an authority", errAsked, authorityAnnotation)
	}
	kept := &corev1.Secret{Type: authorityType}
	if err := c.client.Get(ctx, key, kept); client.IgnoreNotFound(err) != nil {
		return pki.Authority{}, fmt.Errorf("reading the authority %s: %w", key, err)
	}
	if kept.Type != authorityType {
		return pki.Authority{}, fmt.Errorf("%w: the Secret %s has no authority, as it is not of type %s", errAsked, key.Name, authorityType)
	}
	p := pki.Pair{Certificate: kept.Data[corev1.TLSCertKey], Key: kept.Data[corev1.TLSPrivateKeyKey]}
	authority, err := pki.ReadAuthority(p)
	if err != nil {
		return pki.Authority{}, fmt.Errorf("%w: the Secret %s: %w. Restore it, or delete it and trust the one that is made then", errAsked, key.Name, err)
	}
	renewed, err := authority.Renewed(c.now(), c.authority)
	if err != nil {
		return pki.Authority{}, err
	}
	return renewed, c.keep(ctx, key, kept, renewed)
}

// keep stores an authority, if it is not what is kept.
func (c *controller) keep(ctx context.Context, key client.ObjectKey, kept *corev1.Secret, authority pki.Authority) error {
	p, err := authority.PEM()
	if err != nil || bytes.Equal(p.Certificate, kept.Data[corev1.TLSCertKey]) {
		return err
	}
	changed := kept.DeepCopy()
	changed.Data = map[string][]byte{corev1.TLSCertKey: p.Certificate, corev1.TLSPrivateKeyKey: p.Key}
	if kept.ResourceVersion == "" {
		changed.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		return c.client.Create(ctx, changed)
	}
	return c.client.Update(ctx, changed)
}

// certificate is what a Secret asks for: for a client, or for the server of some hosts.
type certificate struct {
	certificate, key string // of the Secret's data
	client           string
	hosts            []string
}

func certificateOf(secret *corev1.Secret) (certificate, error) {
	name, asksForClient := secret.Annotations[clientAnnotation]
	hosts, asksForServer := secret.Annotations[hostsAnnotation]
	switch {
	case secret.Type == authorityType:
		return certificate{}, fmt.Errorf("%w: the Secret has an authority, which would be lost", errAsked)
	case asksForClient == asksForServer:
		return certificate{}, fmt.Errorf("%w: set one of %s and %s", errAsked, hostsAnnotation, clientAnnotation)
	case asksForClient && (name == "" || len(name) > 64): // RFC 5280, ub-common-name
		return certificate{}, fmt.Errorf("%w: %s takes 1 to 64 characters", errAsked, clientAnnotation)
	case asksForClient:
		return certificate{certificate: "client.crt", key: "client.key", client: name}, nil
	}
	wanted := certificate{certificate: corev1.TLSCertKey, key: corev1.TLSPrivateKeyKey, hosts: strings.Split(hosts, ",")}
	if len(wanted.hosts) > mostHosts {
		return certificate{}, fmt.Errorf("%w: %s has %d hosts, of which %d are allowed", errAsked, hostsAnnotation, len(wanted.hosts), mostHosts)
	}
	for i, host := range wanted.hosts {
		host = strings.TrimSpace(host)
		wanted.hosts[i] = host
		if len(validation.IsDNS1123Subdomain(host)) > 0 && len(validation.IsWildcardDNS1123Subdomain(host)) > 0 {
			return certificate{}, fmt.Errorf("%w: %s: %.80q is no host", errAsked, hostsAnnotation, host)
		}
	}
	return wanted, nil
}

func (w certificate) renewal(by pki.Authority, have pki.Pair) time.Time {
	if w.client != "" {
		return by.ClientRenewal(have, w.client)
	}
	return by.ServerRenewal(have, w.hosts)
}

func (w certificate) issue(by pki.Authority, now time.Time, validity time.Duration) (pki.Pair, error) {
	if w.client != "" {
		return by.Client(w.client, now, validity)
	}
	return by.Server(w.hosts, now, validity)
}

// data is all that the Secret has. Clients are told apart by whom servers trust, so that a server's has the certificates of the authority.
func (w certificate) data(p pki.Pair, by pki.Authority) map[string][]byte {
	data := map[string][]byte{w.certificate: p.Certificate, w.key: p.Key}
	if w.client == "" {
		data["ca.crt"] = by.Trusted()
	}
	return data
}
