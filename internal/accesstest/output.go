package accesstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Output is all that the tests of a package show: logs, events, statuses and errors. The zero value is empty. It is safe for
// concurrent use.
type Output struct {
	mu    sync.Mutex // guards what follows
	shown bytes.Buffer
}

// secrets are how everything begins that nobody is to see: tokens of API servers, which begin with {"alg": in base64, and private
// keys; and both as Secrets have them, in base64 once more. The header of a key is told from that of a certificate by what follows it.
var secrets = regexp.MustCompile(`eyJhbGciOi|ZXlKaGJHY2lPaU|BEGIN [A-Z ]*PRIVATE KEY|LS0tLS1CRUdJTiB(QUklW|SU0Eg|FQyBQ)`)

// around is how much is told of what is before a secret.
const around = 200

// Run runs the tests of a package, and fails if a token or a key was shown. It returns the code to exit with.
func (o *Output) Run(m *testing.M, pool *mctest.Pool) (code int) {
	log.SetLogger(funcr.New(func(prefix, args string) { o.Note(prefix + args) }, funcr.Options{Verbosity: 5}))
	klog.LogToStderr(false)
	klog.SetOutput(o)
	code = pool.Run(m)
	klog.Flush()
	if found := o.Secret(); found != "" {
		fmt.Fprintln(os.Stderr, "a token or a key was shown:", found)
		return 1
	}
	return code
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shown.Write(p)
}

// Note adds what is shown to somebody.
func (o *Output) Note(shown any) {
	text, err := json.Marshal(shown)
	_, _ = fmt.Fprintf(o, "%+v %s %v\n", shown, text, err)
}

// Secret returns where a token or a key is shown, and "" if none is.
func (o *Output) Secret() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := secrets.FindIndex(o.shown.Bytes())
	if at == nil {
		return ""
	}
	return string(o.shown.Bytes()[max(0, at[0]-around):at[1]]) + "…"
}

// Collect adds what the hub shows in a namespace when the test ends: events, and objects with their statuses.
func (o *Output) Collect(t *testing.T, hub *mctest.ControlPlane, namespace string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the test's own has ended
		defer cancel()
		for _, list := range []client.ObjectList{&eventsv1.EventList{}, &v1alpha1.ClusterAccessList{}, &v1alpha1.ServiceAccountImportList{}} {
			if err := hub.Client().List(ctx, list, client.InNamespace(namespace)); err != nil {
				t.Errorf("collecting what the hub shows: %v", err)
			}
			o.Note(list)
		}
	})
}
