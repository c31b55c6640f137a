package dependents

import (
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWhichWaveAnObjectIsOf says the annotation, and otherwise its kind.
func TestWhichWaveAnObjectIsOf(t *testing.T) {
	t.Parallel()
	namespace, crd := schema.GroupKind{Kind: "Namespace"}, schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	other := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	says := func(wave string) map[string]string { return map[string]string{WaveAnnotation: wave} }
	for name, tc := range map[string]struct {
		kind    schema.GroupKind
		said    map[string]string
		want    wave
		refused bool
	}{
		"a Namespace":                    {kind: namespace, want: firstWave},
		"a CRD":                          {kind: crd, want: firstWave},
		"any other":                      {kind: other},
		"a Namespace of another group":   {kind: schema.GroupKind{Group: "example.com", Kind: "Namespace"}},
		"a CRD of another group":         {kind: schema.GroupKind{Group: "example.com", Kind: "CustomResourceDefinition"}},
		"a Namespace that says it":       {kind: namespace, said: says("3"), want: 3},
		"a CRD that says it":             {kind: crd, said: says("0")},
		"any other that says it":         {kind: other, said: says("-1"), want: -1},
		"the first that can be said":     {kind: other, said: says("-2147483648"), want: math.MinInt32},
		"the last that can be said":      {kind: other, said: says("2147483647"), want: math.MaxInt32},
		"one before the first":           {kind: other, said: says("-2147483649"), refused: true},
		"one after the last":             {kind: other, said: says("2147483648"), refused: true},
		"no number":                      {kind: other, said: says("first"), refused: true},
		"nothing":                        {kind: other, said: says(""), refused: true},
		"no integer":                     {kind: other, said: says("1.0"), refused: true},
		"a Namespace that says nonsense": {kind: namespace, said: says("first"), want: firstWave, refused: true},
		"a CRD that says nonsense":       {kind: crd, said: says("9999999999"), want: firstWave, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := waveOf(tc.kind, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: tc.said}})
			if got != tc.want || (err != nil) != tc.refused {
				t.Errorf("it is of the wave %d, with the error %v, want %d", got, err, tc.want)
			}
			if why := fmt.Sprintf("%s is %q", WaveAnnotation, tc.said[WaveAnnotation]); err != nil && !strings.Contains(err.Error(), why) {
				t.Errorf("the error %q does not say that %s", err, why)
			}
		})
	}
}
