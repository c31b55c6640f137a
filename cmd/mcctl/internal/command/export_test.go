package command

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// Describe returns what describe prints of a member, and whether it exits with 0.
func Describe(member *membersv1alpha1.Member, access *accessv1alpha1.ClusterAccess) (text string, ready bool) {
	return describeAs(member, access, false)
}

// DescribeStale is Describe for a member whose manager is gone.
func DescribeStale(member *membersv1alpha1.Member, access *accessv1alpha1.ClusterAccess) (text string) {
	text, _ = describeAs(member, access, true)
	return text
}

func describeAs(member *membersv1alpha1.Member, access *accessv1alpha1.ClusterAccess, stale bool) (text string, ready bool) {
	k := known{member: member, access: access}
	var out strings.Builder
	if err := show(&out, ownName, "east", examine(k, stale, time.Now(), noAnswers("east"))); err != nil {
		panic(err) // a strings.Builder takes all
	}
	ready, _ = k.ready()
	return out.String(), ready
}

// StepOnTerminal runs a step whose progress is shown on a terminal.
func StepOnTerminal(to io.Writer, what string, run func() (string, error)) error {
	return progress{to: to, terminal: true}.step(what, run)
}

// NotTaken says that a member has not taken all, by the error of that.
func NotTaken(err error) string { return (&reached{name: memberSide}).notTaken(err) }

// OfOtherHubs says what is to be run for what has these labels, if that is of another hub than this one.
func OfOtherHubs(hub string, labels map[string]string) string {
	found := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	return newMark(hub, client.ObjectKey{Namespace: "default", Name: "east"}).ofOtherHubs([]client.Object{found})
}

// Connect returns the config by which a cluster is asked, and the one that kubectl's flags have loaded for it.
func Connect(ctx context.Context, kubeconfig string, flags ...string) (asked, loaded *rest.Config, _ error) {
	s := newSide(hubSide)
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.addFlags(set)
	if err := set.Parse(append(flags, "--kubeconfig", kubeconfig)); err != nil {
		return nil, nil, err
	}
	r, err := s.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	loaded, err = s.flags.ToRESTConfig()
	return r.config, loaded, err
}

// Read reads by a client what mcctl has made in a member, what programs keep there, and whether an object is there.
func Read(ctx context.Context, by client.Client, obj client.Object) (made, webhooks, have error) {
	r := &reached{Client: by, name: memberSide, config: &rest.Config{Host: "https://gateway/k8s/clusters/mine"}}
	_, made = r.made(ctx, newMark("hub", client.ObjectKey{Namespace: "default", Name: "east"}), membership.MemberKinds())
	_, _, webhooks = r.webhooks(ctx, r, joined{})
	_, have = r.have(ctx, obj)
	return made, webhooks, have
}

// EndingWith returns a transport whose requests end with a context too.
func EndingWith(ctx context.Context, rt http.RoundTripper) http.RoundTripper {
	return endingWith(ctx)(rt)
}
