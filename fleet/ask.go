package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// prober returns a function that asks the API server whether it is ready.
func prober(cfg *rest.Config) func(context.Context, http.RoundTripper) error {
	q := newQuestion(cfg, "/readyz", "*/*")
	return func(ctx context.Context, over http.RoundTripper) error {
		_, err := q.ask(ctx, over)
		// One that forbids the path, or does not know it, has been reached all the same.
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// mostAnswer is how large the answer to a question of the fleet's own may be, in bytes. Those of API servers have less
// than a hundredth.
const mostAnswer = 256 << 10

// question is what an API server is asked again and again. What can be made once is: a REST client of client-go costs more
// than the request.
type question struct {
	server       *url.URL
	invalid      error // why the config names no server
	path, accept string
	timeout      time.Duration
}

func newQuestion(cfg *rest.Config, path, accept string) *question {
	q := &question{path: path, accept: accept, timeout: cfg.Timeout}
	if q.server, _, q.invalid = rest.DefaultServerUrlFor(cfg); q.invalid != nil {
		q.invalid = fmt.Errorf("the address of the API server: %w", q.invalid)
	}
	return q
}

// ask asks over a transport. Answers that are no success are the errors that client-go has for them.
func (q *question) ask(ctx context.Context, over http.RoundTripper) ([]byte, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	version := metav1.SchemeGroupVersion
	content := rest.ClientContentConfig{
		GroupVersion: version,
		Negotiator:   runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), version),
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // the caller tells what comes of it
	request := rest.NewRequestWithClient(q.server, "", content, &http.Client{Transport: capped{over}, Timeout: q.timeout})
	// What the API server has in its memory is as good as what is stored, and costs it less.
	result := request.Verb(http.MethodGet).AbsPath(q.path).Param("resourceVersion", "0").SetHeader("Accept", q.accept).MaxRetries(0).Do(ctx)
	answer, _ := result.Raw()
	return answer, result.Error()
}

// capped is a transport whose answers end at mostAnswer.
type capped struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c capped) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, mostAnswer), resp.Body}
	}
	return resp, err
}
