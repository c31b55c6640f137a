package dependents

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// servesNothing is a cluster that serves no kind, and counts how often it is asked.
type servesNothing struct {
	cluster.Cluster
	meta.RESTMapper

	asked int
}

func (c *servesNothing) GetRESTMapper() meta.RESTMapper { return c }

func (c *servesNothing) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	c.asked++
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// TestARunLooksForSomeOfTheKindsThatAreNoted, and the next ones for the others: it is not known that nothing is there before all had
// their turn.
func TestARunLooksForSomeOfTheKindsThatAreNoted(t *testing.T) {
	t.Parallel()
	noted := numberedKinds(record.MostKinds)
	nowhere := &servesNothing{}
	c := &engine{ledger: newLedger(), access: &remote.Access{Timeout: time.Minute}}
	o := newOwnerState(mcreconcile.Request{}, "1")
	v := view{plan: &plan{}, noted: noted}
	in := remote.Session{ID: mcowner.ClusterID{Name: "a"}, Cluster: nowhere}
	for n := mostUnknown; ; n += mostUnknown {
		p := &placement{engine: c, asked: v, o: o, at: in, unasked: map[schema.GroupKind]bool{}}
		asked := nowhere.asked
		found, unknown := p.known(t.Context(), p.kindsToRead())
		if len(found)+len(unknown) > 0 || nowhere.asked-asked > mostUnknown {
			t.Fatalf("a run found %v, does not know %v, and asked %d times", found, unknown, nowhere.asked-asked)
		}
		done := report{}
		done.look = p.lookedFor(t.Context(), nil, found, unknown, &done)
		o.report("a", v, done)
		_, known := o.presence("a", in.Life(), schema.GroupKind{Kind: "Other"})
		if all := n >= len(noted); known != all || done.look.more == all {
			t.Fatalf("after %d kinds of %d it is known what is there: %t, and there are more: %t", n, len(noted), known, done.look.more)
		}
		if known {
			break
		}
	}
	if nowhere.asked != len(noted) {
		t.Errorf("the cluster was asked %d times for %d kinds", nowhere.asked, len(noted))
	}
}

// TestAbsencesAreRememberedUpToABound.
func TestAbsencesAreRememberedUpToABound(t *testing.T) {
	t.Parallel()
	absent, _ := newAbsences()
	for i := range 3 * mostAbsences {
		absent.note(schema.GroupKind{Group: "example.com", Kind: fmt.Sprint(i)}, time.Now())
	}
	if n := len(absent.asked); n > mostAbsences {
		t.Errorf("%d kinds are remembered of which there is nothing", n)
	}
}
