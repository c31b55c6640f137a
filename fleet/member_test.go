package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestARefusedDuplicateDoesNotEndWhatThereIs: a member is described as the cluster of another one. It goes on as its own.
func TestARefusedDuplicateDoesNotEndWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{RefuseDuplicates: true})
		set := func(name ClusterName, identity string) {
			if err := f.Set(Member{Name: name, Cluster: &existing{}, Identity: identity}); err != nil {
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

// TestAnEngagementThatHasEndedByItselfKeepsNoIdentity: the next one may be another cluster, and others may be that one.
func TestAnEngagementThatHasEndedByItselfKeepsNoIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		if err := f.Set(Member{Name: "a", Cluster: &existing{}, Identity: "1"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		e, err := f.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		e.end(errors.New("the cache has stopped"))
		if err := f.Set(Member{Name: "a", Cluster: &existing{}, Identity: "2"}); err != nil {
			t.Fatal(err)
		}
		if err := f.Set(Member{Name: "b", Cluster: &existing{}, Identity: "1"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status, _ := f.Status("b"); len(status.Duplicates) > 0 {
			t.Errorf("b is the same cluster as %v, want none", status.Duplicates)
		}
	})
}
