package fleet

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	certutil "k8s.io/client-go/util/cert"
)

// TestFilesThatAnOptionNamesAreFollowed: they are in no description.
func TestFilesThatAnOptionNamesAreFollowed(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	write := func(content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ca)
	f := New(Options{RESTConfig: func(_ Member, cfg *rest.Config) error {
		cfg.CAFile = path
		return nil
	}})
	m := newMember(f, Member{Name: "a", Config: &rest.Config{Host: server.URL}})
	cfg, err := m.usable(m.described)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGeneration(cfg, &m.plugin)
	if err != nil {
		t.Fatal(err)
	}
	m.engagement = newEngagement(t.Context(), "a")
	m.engagement.wire = &wire{}
	m.engagement.wire.current.Store(g)
	if m.filesChanged(m.described) || m.untilFilesAreRead() != readFilesEvery {
		t.Errorf("the file has changed, or is to be read after %s", m.untilFilesAreRead())
	}
	write(append(ca, ca...))
	if !m.filesChanged(m.described) {
		t.Error("the file has not changed")
	}
}

// TestARefusedDuplicateDoesNotEndWhatThereIs: a member is described as the cluster of another one. It goes on as its own.
func TestARefusedDuplicateDoesNotEndWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{RefuseDuplicates: true})
		set := func(name ClusterName, identity string) {
			if err := f.set(Member{Name: name, Cluster: &existing{}, Identity: identity}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		set("a", "1")
		set("b", "2")
		e, err := f.Engagement("b")
		if err != nil {
			t.Fatal(err)
		}
		set("b", "1")
		status, _ := f.Status("b")
		if e.Context().Err() != nil || status.State != Ready || status.Reason != ReasonDuplicate {
			t.Errorf("b is %s (%s), and its engagement ended by %v, want Ready, Duplicate and none", status.State, status.Reason, e.Context().Err())
		}
	})
}

// TestAMemberMayBecomeAnotherCluster that no other member is, and one that another is too unless duplicates are refused.
func TestAMemberMayBecomeAnotherCluster(t *testing.T) {
	for name, c := range map[string]struct {
		refuse     bool
		becomes    string
		duplicates []ClusterName
	}{
		"duplicates are refused": {true, "3", nil}, "duplicates are told": {false, "1", []ClusterName{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := running(t, Options{RefuseDuplicates: c.refuse})
				set(t, f, Member{Name: "a", Cluster: &existing{}, Identity: "1"})
				set(t, f, Member{Name: "b", Cluster: &existing{}, Identity: "2"})
				before := f.now("b").Engagement
				set(t, f, Member{Name: "b", Cluster: &existing{}, Identity: c.becomes})
				if cause := context.Cause(before.Context()); !errors.Is(cause, ErrAnotherCluster) {
					t.Errorf("the engagement with the cluster before ended by %v", cause)
				}
				s := status(t, f, "b")
				if s.State != Ready || s.Identity != c.becomes || !slices.Equal(s.Duplicates, c.duplicates) {
					t.Errorf("it is %+v, want Ready, as %s", s, c.becomes)
				}
			})
		})
	}
}

// TestAnotherClusterBeginsWhenNothingOfTheOneBeforeRuns: until then there is no engagement, and the status says why.
func TestAnotherClusterBeginsWhenNothingOfTheOneBeforeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		set(t, f, Member{Name: "a", Cluster: &existing{}, Identity: "1"})
		_, done, err := f.now("a").Engagement.Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		set(t, f, Member{Name: "a", Cluster: &existing{}, Identity: "2"})
		if s := status(t, f, "a"); s.State != Draining || s.Reason != ReasonAnotherCluster || f.now("a").Engagement != nil {
			t.Errorf("while a reconcile of the cluster before runs: %+v", s)
		}
		set(t, f, Member{Name: "b", Cluster: &existing{}, Identity: "1"})
		if s := status(t, f, "b"); len(s.Duplicates) > 0 {
			t.Errorf("what the member was before is a duplicate still: %v", s.Duplicates)
		}
		done()
		if s := status(t, f, "a"); s.State != Ready || s.Identity != "2" || s.Reason != "" {
			t.Errorf("after that: %+v, want the other cluster", s)
		}
	})
}

// TestAnEngagementThatHasEndedByItselfKeepsNoIdentity: the next one may be another cluster, and others may be that one.
func TestAnEngagementThatHasEndedByItselfKeepsNoIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		if err := f.set(Member{Name: "a", Cluster: &existing{}, Identity: "1"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		e, err := f.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		e.end(errors.New("the cache has stopped"))
		if err := f.set(Member{Name: "a", Cluster: &existing{}, Identity: "2"}); err != nil {
			t.Fatal(err)
		}
		if err := f.set(Member{Name: "b", Cluster: &existing{}, Identity: "1"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status, _ := f.Status("b"); len(status.Duplicates) > 0 {
			t.Errorf("b is the same cluster as %v, want none", status.Duplicates)
		}
	})
}

// TestAClientCertificateIsThereForEachHandshake: it is not kept, but made of the same data each time.
func TestAClientCertificateIsThereForEachHandshake(t *testing.T) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("client", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := transport.TLSConfig{CertData: cert, KeyData: key}
	if err := parseCertificateLate(&config); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := config.GetCertHolder.GetCert()
		if err != nil || !got.Leaf.Equal(want.Leaf) {
			t.Errorf("%v and %v, want the certificate of the data", got, err)
		}
	}
	if err := parseCertificateLate(&transport.TLSConfig{CertData: []byte("none"), KeyData: key}); err == nil {
		t.Error("data without a certificate are accepted")
	}
}

// TestFollowersHearOfDuplicates as they come and go.
func TestFollowersHearOfDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		set(t, f, Member{Name: "a", Cluster: &existing{}, Identity: "1"})
		ctx, stop := context.WithCancel(t.Context())
		var heard atomic.Int64
		go func() { // ends with ctx
			for change := range f.Changes(ctx) {
				if change.Status.Name == "a" {
					heard.Store(int64(len(change.Status.Duplicates)))
				}
			}
		}()
		set(t, f, Member{Name: "b", Cluster: &existing{}, Identity: "1"})
		if heard.Load() != 1 {
			t.Errorf("followers have heard of %d duplicates, want one", heard.Load())
		}
		<-f.remove("b")
		synctest.Wait()
		if heard.Load() != 0 {
			t.Errorf("followers have heard of %d duplicates, want none", heard.Load())
		}
		stop()
		synctest.Wait()
	})
}

// TestDuplicatesAreToldUpToTen: each of many members that are one cluster would name all the others.
func TestDuplicatesAreToldUpToTen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		for i := range 2 * mostDuplicates {
			if err := f.set(Member{Name: ClusterName(fmt.Sprintf("m-%02d", i)), Cluster: &existing{}, Identity: "1"}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		<-f.remove("m-03")
		synctest.Wait()
		for name, want := range map[ClusterName]string{
			"m-00": "[m-01 m-02 m-04 m-05 m-06 m-07 m-08 m-09 m-10 m-11]", "m-19": "[m-00 m-01 m-02 m-04 m-05 m-06 m-07 m-08 m-09 m-10]",
		} {
			if status, _ := f.Status(name); fmt.Sprint(status.Duplicates) != want {
				t.Errorf("%s: %v, want %s", name, status.Duplicates, want)
			}
		}
	})
}
