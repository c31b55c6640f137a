package dependents

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// TestNewNamesBeginNoNewWait: others may write objects of ever new names, and those that were denied are forgotten once none is.
func TestNewNamesBeginNoNewWait(t *testing.T) {
	t.Parallel()
	named := func(namespace, name string) dependent {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return dependent{remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap")), cm}
	}
	hourAgo := time.Now().Add(-time.Hour)
	before := denials{whereDenied(named("theirs", "one")): hourAgo, whereDenied(named("granted", "one")): hourAgo}
	denied := fmt.Errorf("%w: forbidden", errDenied)
	now := denials{}
	now.note(before, []dependent{named("theirs", "two"), named("new", "one"), named("granted", "one")}, []error{denied, denied, nil})
	if since := now[whereDenied(named("theirs", "three"))]; !since.Equal(hourAgo) {
		t.Errorf("another name is denied since %s", since)
	}
	if since := now[whereDenied(named("new", "one"))]; time.Since(since) > time.Minute {
		t.Errorf("in a namespace that was not looked at it is denied since %s", since)
	}
	if len(now) != 2 {
		t.Errorf("denied are %v", now)
	}
}
