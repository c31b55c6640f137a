package inpod

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheNamespaceOfAPodIsThatOfItsServiceAccount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	t.Setenv("POD_NAMESPACE", "")
	if own, err := Namespace(file); err == nil || !strings.Contains(err.Error(), "set the environment variable POD_NAMESPACE") {
		t.Errorf("outside a pod: got %q and the error %v, want one that says what to set", own, err)
	}
	if err := os.WriteFile(file, []byte("fleet\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if own, err := Namespace(file); err != nil || own != "fleet" {
		t.Errorf("in a pod: got %q, %v", own, err)
	}
	t.Setenv("POD_NAMESPACE", "other")
	if own, err := Namespace(file); err != nil || own != "other" {
		t.Errorf("with POD_NAMESPACE: got %q, %v", own, err)
	}
}
