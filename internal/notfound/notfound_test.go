package notfound

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOnlyTheAPIServersWordProvesThatAnObjectIsNotThere(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
			if got := Is(tc.err, "a"); got != tc.want {
				t.Errorf("Is(%v) = %v, want %v", tc.err, got, tc.want)
			}
			if got := Ignore(tc.err, "a"); tc.want && got != nil || !tc.want && !errors.Is(got, tc.err) {
				t.Errorf("Ignore(%v) = %v", tc.err, got)
			}
		})
	}
}
