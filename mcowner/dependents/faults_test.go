package dependents

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Errors as they are met, about one object each.
var (
	errRefused    = errors.New("refused")
	errInvalid    = apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil)
	errOther      = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("changed"))
	errUnanswered = &url.Error{Op: "Patch", URL: "https://a", Err: errors.New("no route")}
	errNotReady   = fmt.Errorf("%w: the wave before", ErrWaiting)
	errOld        = fmt.Errorf("the old one is %w", errGoing)
	errNobody     = apierrors.NewUnauthorized("the credentials are being replaced")
	errLate       = &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}}
	errAway       = fmt.Errorf("finding what is desired: %w", &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: "another"}})
	errClosing    = &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: 403, Reason: metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
	}}
	errNoFile = &fs.PathError{Op: "open", Path: "a", Err: syscall.ENOENT}
	errBroken = fmt.Errorf("reading: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET})
	errKept   = fmt.Errorf("%w: forbidden", errDenied)
	errTaken  = &ConflictError{Object: "ConfigMap default/b", Why: errNoReference}
)

// unsynced says that a kind cannot be read from a cache, as a fleet does.
type unsynced struct{ error }

func (e *unsynced) Is(target error) bool { return target == fleet.ErrNotReady }
func (e *unsynced) Unwrap() error        { return e.error }
func (e *unsynced) NotSynced() (mcreconcile.ClusterName, schema.GroupKind) {
	return "a", schema.GroupKind{}
}

var errUnserved = &meta.NoKindMatchError{}

// TestWhatIsWrongCountsBesideWhatIsWaitedFor, in whatever order objects have these errors.
func TestWhatIsWrongCountsBesideWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		errs      []error
		want, not []error
		reason    string
		failure   bool
	}{
		"nothing":                              {errs: []error{nil, nil}},
		"refused":                              {errs: []error{errRefused}, want: []error{errRefused}, reason: EventFailed, failure: true},
		"refused beside a wait":                {errs: []error{errNotReady, errRefused}, want: []error{errRefused}, not: []error{ErrWaiting}, reason: EventFailed, failure: true},
		"refused beside what is pending":       {errs: []error{ErrPending, errRefused}, want: []error{errRefused}, not: []error{ErrPending}, reason: EventFailed, failure: true},
		"refused beside what goes":             {errs: []error{errOld, errRefused}, want: []error{errRefused}, not: []error{errGoing}, reason: EventFailed, failure: true},
		"invalid beside what others change":    {errs: []error{errOther, errInvalid}, want: []error{errInvalid}, not: []error{errOther}, reason: EventFailed, failure: true},
		"invalid beside a namespace that goes": {errs: []error{errClosing, errInvalid}, want: []error{errInvalid}, not: []error{errClosing}, reason: EventFailed, failure: true},
		"invalid beside what was not answered": {errs: []error{errUnanswered, errInvalid}, want: []error{errInvalid, errUnanswered}, reason: EventFailed, failure: true},
		"a file cannot be read":                {errs: []error{errNoFile}, want: []error{errNoFile}, reason: EventFailed, failure: true},
		"an answer breaks off":                 {errs: []error{errBroken}, want: []error{errBroken}, reason: EventFailed},
		"not answered":                         {errs: []error{errUnanswered}, want: []error{errUnanswered}, reason: EventFailed},
		"nobody, for now":                      {errs: []error{errNobody}, want: []error{errNobody}, reason: EventFailed},
		"another cluster is away":              {errs: []error{errAway}, want: []error{errAway}, reason: EventClusterNotReady},
		"too late":                             {errs: []error{errLate}, want: []error{errLate}, reason: EventFailed},
		"invalid beside what was too late":     {errs: []error{errLate, errInvalid}, want: []error{errInvalid, errLate}, reason: EventFailed, failure: true},
		"taken beside a wait":                  {errs: []error{errNotReady, errTaken}, want: []error{errTaken}, not: []error{ErrWaiting}, reason: EventConflict, failure: true},
		"taken, and refused":                   {errs: []error{errTaken, errRefused}, want: []error{errTaken, errRefused}, reason: EventConflict, failure: true},
		"two waits":                            {errs: []error{errNotReady, errOld}, want: []error{errNotReady}, not: []error{errGoing}},
		"others change it, and a wait":         {errs: []error{errNotReady, errOther}, want: []error{errOther}, not: []error{ErrWaiting}},
		"others change it back":                {errs: []error{errNotReady, errContended}, want: []error{errContended}, reason: EventContended},
		"invalid beside what is changed back":  {errs: []error{errContended, errInvalid}, want: []error{errContended, errInvalid}, reason: EventContended, failure: true},
		"may not be removed":                   {errs: []error{errKept}, want: []error{errKept}, reason: EventFailed},
		"may not be removed, beside a wait":    {errs: []error{errKept, errOld}, want: []error{errOld}, not: []error{errDenied}},
		"may not be removed, beside a fault":   {errs: []error{errKept, errOld, errInvalid}, want: []error{errInvalid}, not: []error{errGoing}, reason: EventFailed, failure: true},
		"a namespace goes, and a wait":         {errs: []error{errNotReady, errClosing}, want: []error{errClosing}, not: []error{ErrWaiting}, reason: EventTerminating},
		"a namespace goes, others change it":   {errs: []error{errClosing, errOther}, want: []error{errOther}, not: []error{errClosing}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends, reversed := make([]error, 0, 2*len(tc.errs)), make([]error, len(tc.errs))
			for i, err := range tc.errs {
				reversed[len(reversed)-1-i] = err
				ends = append(ends, err, nil)
			}
			got := []error{together(tc.errs...), together(ends...), together(together(tc.errs...), nil)}
			if name != "two waits" { // of which the first counts
				got = append(got, together(reversed...), together(together(reversed[:1]...), together(reversed[1:]...)))
			}
			for _, err := range got {
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						t.Errorf("it is %v, want %v", err, want)
					}
				}
				for _, not := range tc.not {
					if errors.Is(err, not) {
						t.Errorf("it is %v, also %v", err, not)
					}
				}
				if (err == nil) != (len(tc.want) == 0) || reasonOf(err) != tc.reason && err != nil || isFailure(err) != tc.failure {
					t.Errorf("%v is told as %q, failure: %t, want %q, %t", err, reasonOf(err), isFailure(err), tc.reason, tc.failure)
				}
			}
		})
	}
}

// TestWhatARolloutTakesForAFailure, of what a look at a cluster has come to.
func TestWhatARolloutTakesForAFailure(t *testing.T) {
	t.Parallel()
	stalls, suspended := fmt.Errorf("%w: %w", ErrWaiting, errStalled), []ObjectResult{{State: Suspended}}
	for name, tc := range map[string]struct {
		report
		is, once rollout.Outcome // while the owner is as it was, and once it is changed
	}{
		"as desired":                   {is: rollout.Complete, once: rollout.Complete},
		"not looked":                   {report: report{Result: Result{Err: ErrPending}}, is: rollout.NotLooked, once: rollout.NotLooked},
		"not known yet":                {report: report{Result: Result{Err: ErrWaiting}, unknown: true}, is: rollout.Unread, once: rollout.Unread},
		"not ready":                    {report: report{Result: Result{Unready: ErrWaiting}}, is: rollout.NotReady, once: rollout.NotReady},
		"a wave is not ready":          {report: report{Result: Result{Err: errNotReady, Unready: ErrWaiting}}, is: rollout.NotReady, once: rollout.NotReady},
		"a wave is suspended":          {report: report{Result: Result{Err: errNotReady}}, is: rollout.Other, once: rollout.Other},
		"it will not be ready":         {report: report{Result: Result{Unready: stalls}}, is: rollout.Stalled, once: rollout.NotReady},
		"the wave before will not be":  {report: report{Result: Result{Err: stalls, Unready: stalls}}, is: rollout.Stalled, once: rollout.NotReady},
		"it has no permit":             {report: report{Result: Result{Err: errNotReady}, refused: true}, is: rollout.Other, once: rollout.Other},
		"refused":                      {report: report{Result: Result{Err: errRefused}}, is: rollout.Failed, once: rollout.Other},
		"refused, others are not":      {report: report{Result: Result{Err: together(errUnanswered, errInvalid)}}, is: rollout.Failed, once: rollout.Unread},
		"refused, without a permit":    {report: report{Result: Result{Err: together(errNotReady, errRefused)}, refused: true}, is: rollout.Failed, once: rollout.Other},
		"refused, and a wave waits":    {report: report{Result: Result{Err: together(errNotReady, errRefused)}}, is: rollout.Failed, once: rollout.Other},
		"not answered":                 {report: report{Result: Result{Err: errUnanswered}}, is: rollout.Unread, once: rollout.Unread},
		"nobody, for now":              {report: report{Result: Result{Err: errNobody}}, is: rollout.Unread, once: rollout.Unread},
		"another cluster is away":      {report: report{Result: Result{Err: errAway}}, is: rollout.Unread, once: rollout.Unread},
		"so, and one is refused":       {report: report{Result: Result{Err: together(errAway, errInvalid)}}, is: rollout.Failed, once: rollout.Unread},
		"too late":                     {report: report{Result: Result{Err: errLate}}, is: rollout.Unread, once: rollout.Unread},
		"not answered, and not ready":  {report: report{Result: Result{Err: errUnanswered, Unready: stalls}}, is: rollout.Unread, once: rollout.Unread},
		"a kind is not answered":       {report: report{Result: Result{Err: together(errOther, &unsynced{errUnanswered})}}, is: rollout.Unread, once: rollout.Unread},
		"a kind is not served":         {report: report{Result: Result{Err: &unsynced{errUnserved}}}, is: rollout.Failed, once: rollout.Other},
		"it leaves":                    {report: report{Result: Result{Err: ErrLeaving}}, is: rollout.Other, once: rollout.Other},
		"others change it":             {report: report{Result: Result{Err: errOther}}, is: rollout.Other, once: rollout.Other},
		"others change it back":        {report: report{Result: Result{Err: errContended}}, is: rollout.Complete, once: rollout.Complete},
		"they do, and it is not ready": {report: report{Result: Result{Err: errContended, Unready: ErrWaiting}}, is: rollout.NotReady, once: rollout.NotReady},
		"something may not be removed": {report: report{Result: Result{Err: together(errKept, errKept)}}, is: rollout.Complete, once: rollout.Complete},
		"so, and another is refused":   {report: report{Result: Result{Err: together(errKept, errRefused)}}, is: rollout.Failed, once: rollout.Other},
		"so, and one is not answered":  {report: report{Result: Result{Err: together(errKept, errUnanswered)}}, is: rollout.Unread, once: rollout.Unread},
		"so, and another is to go":     {report: report{Result: Result{Err: together(errKept, errOld)}}, is: rollout.Other, once: rollout.Other},
		"others delete it":             {report: report{Result: Result{Err: fmt.Errorf("%w: %w", errContended, errDeleted)}}, is: rollout.Other, once: rollout.Other},
		"it is outdated each time":     {report: report{Result: Result{Err: fmt.Errorf("%w: %w", errContended, errOther)}}, is: rollout.Other, once: rollout.Other},
		"something is suspended":       {report: report{Result: Result{Unready: ErrWaiting, Objects: suspended}, stopped: true}, is: rollout.Other, once: rollout.Other},
		"so it is after what is not":   {report: report{Result: Result{Unready: ErrWaiting, Objects: suspended}}, is: rollout.NotReady, once: rollout.NotReady},
		"the old one is being deleted": {report: report{Result: Result{Err: errOld}}, is: rollout.Other, once: rollout.Other},
		"it is, and the new is not":    {report: report{Result: Result{Err: errOld, Unready: ErrWaiting}}, is: rollout.NotReady, once: rollout.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if is, once := outcomeOf(tc.report, true), outcomeOf(tc.report, false); is != tc.is || once != tc.once {
				t.Errorf("it is %d, and %d once the owner is changed; want %d and %d", is, once, tc.is, tc.once)
			}
		})
	}
}

// TestWhatIsToldOfATargetThatLeaves: nothing, unless something is wrong beside that.
func TestWhatIsToldOfATargetThatLeaves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		reason string
		failed int
	}{
		"nothing is there":             {err: ErrLeaving},
		"it is still noted":            {err: errUnnoted},
		"something is going":           {err: fmt.Errorf("%w: %w", errOld, errUnsettled)},
		"something was changed":        {err: fmt.Errorf("%w: %w", errOther, errUnsettled)},
		"others bring it back":         {err: fmt.Errorf("%w: %w", errContended, errUnsettled), reason: EventContended, failed: 1},
		"a policy makes no sense":      {err: fmt.Errorf("%w: %w", errPolicy, errUnsettled), failed: 1}, // which is told once for all clusters
		"something may not be removed": {err: errKept, reason: EventFailed, failed: 1},
		"there is no answer":           {err: errUnanswered, reason: EventFailed, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Summarize([]Result{{Targeted: true, Err: tc.err}})
			if got := reasonOf(tc.err); got != tc.reason || s.Failed != tc.failed || s.Pending != 1-tc.failed || (s.FirstError != nil) != (tc.failed > 0) {
				t.Errorf("it is told as %q, and counts as %+v", got, s)
			}
			if s = Summarize([]Result{{Err: tc.err}}); (s.FirstError != nil) != (tc.failed > 0) {
				t.Errorf("as no target any more, it counts as %+v", s)
			}
		})
	}
}
