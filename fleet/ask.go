package fleet

import (
	"context"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// prober returns a function that asks the API server whether it is ready.
func prober(cfg *rest.Config) func(context.Context, http.RoundTripper) error {
	return func(ctx context.Context, over http.RoundTripper) error {
		_, err := ask(ctx, cfg, over, "/readyz", "*/*")
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

// ask asks an API server for what is at a path.
func ask(ctx context.Context, cfg *rest.Config, rt http.RoundTripper, path, accept string) ([]byte, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, &http.Client{Transport: capped{rt}, Timeout: cfg.Timeout})
	if err != nil {
		return nil, err
	}
	// What the API server has in its memory is as good as what is stored, and costs it less.
	result := client.Get().AbsPath(path).Param("resourceVersion", "0").SetHeader("Accept", accept).MaxRetries(0).Do(ctx)
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
