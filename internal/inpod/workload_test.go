package inpod

import (
	"os"
	"testing"
)

func TestTheNameOfAPodTellsItsWorkload(t *testing.T) {
	for pod, want := range map[string]struct {
		name, revision string
		ok             bool
	}{
		"payments-7d9c5b8f6d-x2k4q":       {"payments", "7d9c5b8f6d", true},
		"payments-eu-5b8f6d79c-zzzzz":     {"payments-eu", "5b8f6d79c", true},
		"payments-0":                      {"payments", "", true},
		"payments.eu-12":                  {"payments.eu", "", true},
		"laptop":                          {},
		"payments-x2k4q":                  {},
		"":                                {},
		"-0":                              {},
		"payments-7d9c5b8f6d-x2k4q-debug": {},
	} {
		name, revision, ok := Workload(pod)
		if name != want.name || revision != want.revision || ok != want.ok {
			t.Errorf("Workload(%q) = %q, %q, %v, want %+v", pod, name, revision, ok, want)
		}
	}
}

func TestTheNameOfAPodIsThatOfTheEnvironmentOrTheHost(t *testing.T) {
	t.Setenv("POD_NAME", "payments-0")
	if got, err := Name(); got != "payments-0" || err != nil {
		t.Errorf("Name() = %q, %v", got, err)
	}
	t.Setenv("POD_NAME", "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Name(); got != host || err != nil {
		t.Errorf("Name() = %q, %v, want that of the host, %q", got, err, host)
	}
}
