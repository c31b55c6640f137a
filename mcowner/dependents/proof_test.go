package dependents

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestOnlyTheAPIServersWordProvesThatAnOwnerIsGone(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	cases := map[string]struct {
		err  error
		want bool
	}{
		"NotFound":          {apierrors.NewNotFound(pods, "a"), true},
		"NotFoundAndMore":   {fmt.Errorf("reading: %w", apierrors.NewNotFound(pods, "a")), true},
		"AnotherObject":     {apierrors.NewNotFound(pods, "b"), false},
		"PageNotFound":      {apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", pods, "a", "404 page not found", 0, true), false},
		"KindNotServed":     {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Pod"}}, false},
		"Forbidden":         {apierrors.NewForbidden(pods, "a", errors.New("no right")), false},
		"Expired":           {apierrors.NewResourceExpired("a"), false},
		"NoAnswer":          {errors.New("connection refused"), false},
		"NoError":           {nil, false},
		"NotFoundInGeneral": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := isNotThere(tc.err, "a"); got != tc.want {
				t.Errorf("isNotThere(%v) = %v, want %v", tc.err, got, tc.want)
			}
		})
	}
}

func TestNotesFitIntoEvents(t *testing.T) {
	for _, note := range []string{"", "short", strings.Repeat("x", maxNote), strings.Repeat("x", maxNote+1), strings.Repeat("ä", maxNote)} {
		got := truncate(note)
		if len(got) > maxNote || !utf8.ValidString(got) {
			t.Errorf("a note of %d bytes became one of %d, valid: %v", len(note), len(got), utf8.ValidString(got))
		}
		if len(note) <= maxNote && got != note {
			t.Errorf("a note of %d bytes was changed", len(note))
		}
	}
}

// FuzzRecord reads whatever somebody has written where the owner's clusters are noted, and writes over it.
func FuzzRecord(f *testing.F) {
	f.Add(`["east","west"]`, "north")
	f.Add(`nonsense`, "")
	f.Add(`[1]`, "\x00")
	f.Fuzz(func(t *testing.T, content, name string) {
		r := newRecord("payments", "copier")
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{r.annotation: content}}}
		placed, ok := r.read(owner)
		if !ok && len(placed) > 0 {
			t.Fatalf("%q cannot be read, and was read as %q", content, placed)
		}
		if !r.exists(owner) {
			t.Fatal("there is a record, and it is not seen")
		}
		want := union([]mcreconcile.ClusterName{mcreconcile.ClusterName(strings.ToValidUTF8(name, ""))}, placed)
		r.set(owner, want, true)
		got, ok := r.read(owner)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Fatalf("the record (-written, +read):\n%s", diff)
		}
		r.set(owner, nil, false)
		if r.exists(owner) {
			t.Fatalf("the record was removed, and is there: %v", owner.ObjectMeta)
		}
	})
}
