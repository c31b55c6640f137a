package objects

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// troubles reports problems of a provider.
type troubles struct {
	provider string
	members  fleet.Members
}

// begin reports a problem.
func (t troubles) begin(about string, member fleet.ClusterName, reason, message string) {
	t.members.SetProblem(fleet.Problem{Provider: t.provider, About: about, Member: member, Reason: reason, Message: message})
}

// end ends it.
func (t troubles) end(about string, member fleet.ClusterName) {
	t.members.SetProblem(fleet.Problem{Provider: t.provider, About: about, Member: member})
}

// answers finds out from what the server answers whether a watch works. The reflector hears of errors with their text,
// but not of all, and it is not told when the watch works again. So the requests are looked at too.
type answers struct {
	http.RoundTripper

	about    string // what is watched
	troubles troubles
}

// about says what is watched.
func (s scope) about(kind string) string {
	about := kind + " objects"
	if s.namespace != metav1.NamespaceAll {
		about += " in namespace " + s.namespace
	}
	if s.selector != nil && !s.selector.Empty() {
		about += " with " + s.selector.String()
	}
	return about
}

// client returns an HTTP client like the given one, whose requests are looked at.
func (a answers) client(like *http.Client) *http.Client {
	looking := *like
	a.RoundTripper = cmp.Or(like.Transport, http.DefaultTransport)
	looking.Transport = a
	return &looking
}

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(req)
	switch {
	case err != nil && req.Context().Err() == nil:
		a.failed(err)
	case err == nil && resp.StatusCode == http.StatusOK && req.URL.Query().Get("watch") == "true":
		a.troubles.end(a.about, "") // a list that works is not enough
	}
	return resp, err
}

// failed reports why the objects cannot be watched. That a watch has ended is no failure: it begins anew.
func (a answers) failed(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	advice := "the local cluster cannot be asked"
	switch fleet.ReasonOf(err) {
	case fleet.ReasonForbidden:
		advice = "grant the manager get, list and watch"
	case fleet.ReasonNoKind:
		advice = "the local cluster does not serve the kind"
	}
	a.troubles.begin(a.about, "", fleet.ReasonOf(err), fmt.Sprintf("clusters are not discovered: %s: %v", advice, err))
}
