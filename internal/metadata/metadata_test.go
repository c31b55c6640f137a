package metadata_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/fleet-runtime/fleet-runtime/internal/metadata"
)

func TestWhatIsNotOfItsTypeIsTold(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		`{}`:                 "",
		`{"metadata":null}`:  "",
		`{"metadata":["a"]}`: "metadata is no map",
		`{"metadata":{"name":"a","namespace":null,"labels":null,"annotations":{"a":"b","c":"","d":null},"finalizers":["a"],
			"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1","controller":true,"blockOwnerDeletion":null}]}}`: "",
		`{"metadata":{"name":1}}`:                                             "metadata.name is no text",
		`{"metadata":{"generateName":{}}}`:                                    "metadata.generateName is no text",
		`{"metadata":{"namespace":5}}`:                                        "metadata.namespace is no text",
		`{"metadata":{"labels":["secret"]}}`:                                  "metadata.labels is no map",
		`{"metadata":{"labels":{"a":"b","d":true,"c":"d"}}}`:                  "metadata.labels.d is no text",
		`{"metadata":{"annotations":{"a":"b","size":7,"zone":null}}}`:         "metadata.annotations.size is no text",
		`{"metadata":{"annotations":"secret"}}`:                               "metadata.annotations is no map",
		`{"metadata":{"finalizers":{"secret":1}}}`:                            "metadata.finalizers is no list",
		`{"metadata":{"finalizers":["a",1]}}`:                                 "metadata.finalizers[1] is no text",
		`{"metadata":{"ownerReferences":{}}}`:                                 "metadata.ownerReferences is no list",
		`{"metadata":{"ownerReferences":[{},"secret"]}}`:                      "metadata.ownerReferences[1] is no map",
		`{"metadata":{"ownerReferences":[{"uid":1}]}}`:                        "metadata.ownerReferences[0].uid is no text",
		`{"metadata":{"ownerReferences":[{"controller":"secret"}]}}`:          "metadata.ownerReferences[0].controller is neither true nor false",
		`{"metadata":{"annotations":{"` + strings.Repeat("k", 999) + `":1}}}`: "metadata.annotations." + strings.Repeat("k", 317) + " is no text",
	} {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		told := ""
		if err := metadata.Check(u); err != nil {
			told = err.Error()
		}
		if told != says {
			t.Errorf("%.100s: the error is %q, want %q", text, told, says)
		}
	}
	if err := metadata.Check(&corev1.ConfigMap{}); err != nil {
		t.Errorf("of a Go type: %v", err)
	}
}
