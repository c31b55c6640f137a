package accesstest

import (
	"strings"
	"testing"
)

func TestAnOutputThatShowsATokenSaysWhere(t *testing.T) {
	var o Output
	o.Note("the server answers no")
	if found := o.Token(); found != "" {
		t.Errorf("it finds %q", found)
	}
	o.Note(map[string]string{"sent": "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln"})
	if found := o.Token(); !strings.Contains(found, "Bearer") || strings.Contains(found, "c2ln") {
		t.Errorf("it finds %q, want what is before the token", found)
	}
}
