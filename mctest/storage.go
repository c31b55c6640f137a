package mctest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storage is the etcd of a control plane. It says in one request what the API server says in one for each resource. Nothing
// is written to it.
type storage struct {
	url    string // of its clients
	client http.Client
}

func newStorage(url string) *storage {
	return &storage{url: url, client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// object is one object of any kind, as it was written.
type object struct {
	kind    schema.GroupKind
	created int64 // at which revision
	metav1.ObjectMeta
}

func (o object) String() string { return o.kind.String() + " " + o.Namespace + "/" + o.Name }

// contents are what a storage holds at one moment.
type contents struct {
	revision int64    // of the last write
	count    int      // of all that is there, not of objects alone
	written  []object // since the revision that was asked for
}

// etcdRange is etcd's answer about all that is in a range.
type etcdRange struct {
	Count int `json:"count,string"`
	Pairs []struct {
		Key, Value []byte
		Created    int64 `json:"create_revision,string"` //nolint:tagliatelle // etcd names it
	} `json:"kvs"`
}

// askTimeout bounds one request, which takes milliseconds. On a busy machine, one was without an answer for a minute.
const askTimeout = 10 * time.Second

// since reads how much there is, and what of it was written after a revision.
func (s *storage) since(ctx context.Context, revision int64) (*contents, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	type fields map[string]any
	// This is where API servers keep what they store, by default. Each says at one key that it is there, and that comes and
	// goes.
	all := fields{"key": []byte("/registry/"), "range_end": []byte("/registry0"), "min_mod_revision": revision + 1}
	there := fields{"key": []byte("/registry/masterleases/"), "range_end": []byte("/registry/masterleases0"), "count_only": true}
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		}
		Responses []struct {
			Range etcdRange `json:"response_range"` //nolint:tagliatelle // etcd names it
		}
	}
	err := s.call(ctx, "/v3/kv/txn", fields{"success": []fields{{"request_range": all}, {"request_range": there}}}, &answer)
	if err != nil {
		return nil, fmt.Errorf("asking etcd what was written: %w", err)
	}
	found := answer.Responses[0].Range
	c := &contents{revision: answer.Header.Revision, count: found.Count - answer.Responses[1].Range.Count}
	for _, p := range found.Pairs {
		stored, err := decode(p.Value)
		if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", p.Key, err)
		}
		c.written = append(c.written, object{stored.GroupVersionKind().GroupKind(), p.Created, stored.ObjectMeta})
	}
	return c, nil
}

// call sends a request to the JSON form of etcd's API.
func (s *storage) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, answer)
	}
	return json.Unmarshal(answer, out)
}

// decode reads the kind and the metadata of a stored object: of an envelope with protobuf, or of JSON if it is a custom
// resource. The metadata are the first field of every kind.
func decode(value []byte) (*metav1.PartialObjectMetadata, error) {
	stored := &metav1.PartialObjectMetadata{}
	enveloped, ok := bytes.CutPrefix(value, []byte("k8s\x00"))
	if !ok {
		return stored, json.Unmarshal(value, stored)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(enveloped); err != nil {
		return nil, err
	}
	err := stored.Unmarshal(envelope.Raw)
	stored.APIVersion, stored.Kind = envelope.APIVersion, envelope.Kind
	return stored, err
}
