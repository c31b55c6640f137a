package dependents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

func TestATextQuotesASecret(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 100)
	typed := &corev1.Secret{Data: map[string][]byte{"a": []byte("s3cr3t"), "short": []byte("abc"), "long": []byte(long)}, StringData: map[string]string{"b": "w0rds"}}
	untyped := &unstructured.Unstructured{Object: map[string]any{
		"data": map[string]any{"a": "not base64!", "n": int64(12345)}, "stringData": []any{map[string]any{"deep": "within"}},
	}}
	const config, lines, letters, cut = `{"password":"hunter2"}`, "a\nb-very-secret", "großes-geheimnis", "eleven-byteß-and-more"
	escaped := &corev1.Secret{StringData: map[string]string{
		"config": config, "lines": lines, "letters": letters, "token": "<tok&en>", "pin": "\x01234", "cut": cut,
	}}
	for name, c := range map[string]struct {
		text   string
		secret client.Object
		want   bool
	}{
		"a value":                 {"it is s3cr3t", typed, true},
		"encoded":                 {"it is czNjcjN0.", typed, true},
		"a value of stringData":   {"it is w0rds", typed, true},
		"that, encoded":           {"it is dzByZHM=", typed, true},
		"the beginning":           {"it is " + long[:20] + "…", typed, true},
		"another":                 {"it is wrong", typed, false},
		"a key":                   {"the key short is wrong", typed, false},
		"what is short":           {"abc", typed, false},
		"what is no base64":       {"it is not base64!", untyped, true},
		"a number":                {"got 12345", untyped, true},
		"within":                  {"got within", untyped, true},
		"nothing in an empty one": {"anything", &corev1.Secret{}, false},
		"as a field error does":   {fmt.Sprintf("data: Invalid value: %q: not allowed", config), escaped, true},
		"the beginning of that":   {fmt.Sprintf("data: Invalid value: %.16q…", config), escaped, true},
		"lines":                   {fmt.Sprintf("data: Invalid value: %q: not allowed", lines), escaped, true},
		"letters as ASCII":        {fmt.Sprintf("data: Invalid value: %+q: not allowed", letters), escaped, true},
		"as JSON does":            {`{"token":"\u003ctok\u0026en\u003e"} is wrong`, escaped, true},
		"as other JSON does":      {`{"pin":"\u0001234"} is wrong`, escaped, true},
		"a rune that is cut":      {"it is " + cut, escaped, true},
		"another that is escaped": {fmt.Sprintf("data: Invalid value: %q: not allowed", "{\"user\":1}"), escaped, false},
	} {
		if got := quotes(c.text, c.secret); got != c.want {
			t.Errorf("%s: %q quotes it: %t, want %t", name, c.text, got, c.want)
		}
	}
}

// TestWhatQuotesAnOwnerIsAsItWas but for its text, whichever state it quotes.
func TestWhatQuotesAnOwnerIsAsItWas(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{})
	a.engine.owner = remote.Untyped(corev1.SchemeGroupVersion.WithKind("Secret"))
	secret := func(holds string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"password": []byte(holds)}}
	}
	a.plan = &plan{owner: secret("s3cr3t")}
	for text, told := range map[string]bool{"it is czNjcjN0": false, "it is to be w0rds": false, "it has no right": true} {
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New(text))
		err := a.writeOwner(t.Context(), secret("w0rds"), func(context.Context, client.Patch, client.FieldOwner) error { return refused })
		if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), text) != told {
			t.Errorf("of %q it is told: %v", text, err)
		}
	}
}
