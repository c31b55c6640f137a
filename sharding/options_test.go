package sharding

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
)

func TestOptionsNeedNothingInAPod(t *testing.T) {
	t.Setenv("POD_NAME", "payments-7d9c5b8f6d-x2k4q")
	t.Setenv("POD_NAMESPACE", "finance")
	got, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != "payments" || got.Revision != "7d9c5b8f6d" || got.Name != "payments-7d9c5b8f6d-x2k4q" || got.Namespace != "finance" {
		t.Errorf("%+v", got)
	}
	if got.LeaseDuration != 15*time.Second || got.Capacity != 1 || got.Buckets != 1024 || got.tableName() != "payments.table" {
		t.Errorf("%+v", got)
	}
}

func TestOptionsSayWhatIsMissingOutsideAPod(t *testing.T) {
	t.Setenv("POD_NAME", "laptop")
	t.Setenv("POD_NAMESPACE", "")
	for want, opts := range map[string]Options{
		"set Options.ID": {},
		"or Options.Namespace": {
			ID: "payments",
		},
	} {
		if _, err := New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want what to do: %s", err, want)
		}
	}
	if _, err := New(Options{ID: "payments", Namespace: "finance"}); err != nil {
		t.Error(err)
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	good := Options{ID: "payments", Namespace: "finance", Name: "a"}
	for want, edit := range map[string]func(*Options){
		"Options.ID":            func(o *Options) { o.ID = "payments.eu" },
		"Options.Pool":          func(o *Options) { o.Pool = "Big" },
		"Options.Revision":      func(o *Options) { o.Revision = strings.Repeat("x", 64) },
		"Options.LeaseDuration": func(o *Options) { o.LeaseDuration = time.Hour },
		"Options.Capacity":      func(o *Options) { o.Capacity = -1 },
		"Options.Buckets":       func(o *Options) { o.Buckets = 1 << 20 },
	} {
		opts := good
		edit(&opts)
		if _, err := New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
}

func TestSessionsHaveNamesThatLeasesCanHave(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "payments-7d9c5b8f6d-x2k4q", "Laptop.local", "-", "", strings.Repeat("x", 400), "ünïcode", "a.table"} {
		o := Options{ID: strings.Repeat("i", 63), Name: fitForLease(name), Pool: "s"}
		session := o.newSession("12345678")
		lease := o.leaseName(session)
		if problems := validation.NameIsDNSSubdomain(lease, false); len(problems) > 0 {
			t.Errorf("a replica named %q: %s: %s", name, lease, problems[0])
		}
		if got, ok := o.sessionOf(lease); !ok || got != session {
			t.Errorf("the session of %s is %q, want %q", lease, got, session)
		}
		if _, ok := o.sessionOf(o.tableName()); ok {
			t.Errorf("the table %s is taken for a session", o.tableName())
		}
	}
	if got := replicaOf("payments-7d9c5b8f6d-x2k4q-12345678"); got != "payments-7d9c5b8f6d-x2k4q" {
		t.Error(got)
	}
}
