package fleet

import (
	"net/http"
	"reflect"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// TestEachFieldOfAConfigIsJudged: a field that a newer client-go adds fails it, until somebody has said here what it is, and has
// made withoutCredentials or withoutTransport know it if it is not part of the address.
func TestEachFieldOfAConfigIsJudged(t *testing.T) {
	t.Parallel()
	type fields map[string]any // to another value, nil for one by its type
	credentials := fields{
		"Username": nil, "Password": nil, "BearerToken": nil, "BearerTokenFile": nil, "AuthProvider": nil, "ExecProvider": nil,
		"AuthConfigPersister": struct {
			rest.AuthProviderConfigPersister
		}{},
		"CertFile": nil, "CertData": nil, "KeyFile": nil, "KeyData": nil,
	}
	connection := fields{
		"Insecure": nil, "ServerName": nil, "CAFile": nil, "CAData": nil, "NextProtos": nil, "DisableCompression": nil,
		"Transport": http.DefaultTransport, "WrapTransport": nil, "Dial": nil, "Proxy": nil,
	}
	address := fields{
		"Host": nil, "APIPath": nil, "Impersonate": rest.ImpersonationConfig{UID: "1"}, "UserAgent": nil, "QPS": nil, "Burst": nil,
		"RateLimiter": flowcontrol.NewFakeAlwaysRateLimiter(), "Timeout": nil,
		"WarningHandler": rest.NoWarnings{}, "WarningHandlerWithContext": rest.NoWarnings{},
		"AcceptContentTypes": nil, "ContentType": nil, "GroupVersion": nil, "NegotiatedSerializer": scheme.Codecs.WithoutConversion(),
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[rest.Config]()) {
		if field.Anonymous {
			continue // its fields follow
		}
		credential, isCredential := credentials[field.Name]
		connects, isConnection := connection[field.Name]
		leads, isAddress := address[field.Name]
		if !isCredential && !isConnection && !isAddress || !field.IsExported() {
			t.Errorf("nobody has said what the field %s of a rest.Config is", field.Name)
			continue
		}
		changed := &rest.Config{}
		set := reflect.ValueOf(changed).Elem().FieldByIndex(field.Index)
		for _, value := range []any{credential, connects, leads} {
			if value != nil {
				set.Set(reflect.ValueOf(value))
			}
		}
		if set.IsZero() {
			set.Set(another(set.Type()))
		}
		before := &rest.Config{}
		if sameAccess(Member{Config: before}, Member{Config: changed}) {
			t.Errorf("another %s is taken for the same access", field.Name)
		}
		if sameRoute(before, changed) != isCredential {
			t.Errorf("another %s: the same route is %v, want %v", field.Name, !isCredential, isCredential)
		}
		if sameAddress(before, changed) == isAddress {
			t.Errorf("another %s: the same address is %v, want %v", field.Name, isAddress, !isAddress)
		}
	}
}

// another returns a value of a type that is not its zero value.
func another(of reflect.Type) reflect.Value {
	value := reflect.New(of).Elem()
	switch of.Kind() { //nolint:exhaustive // the kinds of fields that a config has
	case reflect.String:
		value.SetString("x")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int64:
		value.SetInt(1)
	case reflect.Float32:
		value.SetFloat(1)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(of, 1, 1))
	case reflect.Pointer:
		value.Set(reflect.New(of.Elem()))
	case reflect.Func:
		value.Set(reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value {
			results := make([]reflect.Value, of.NumOut())
			for i := range results {
				results[i] = reflect.Zero(of.Out(i))
			}
			return results
		}))
	}
	return value
}

// TestFieldsThatAreNotExportedAreCompared: a config may come to have some.
func TestFieldsThatAreNotExportedAreCompared(t *testing.T) {
	t.Parallel()
	type config struct {
		Host   string
		hidden []string
		Dial   func()
	}
	dial := func() {}
	a := config{"a", []string{"x"}, dial}
	if !equalButFunctions(a, config{"a", []string{"x"}, dial}) {
		t.Error("the same content is not the same")
	}
	if equalButFunctions(a, config{"a", []string{"y"}, dial}) {
		t.Error("a field that is not exported differs, and is not noticed")
	}
	if equalButFunctions(a, config{"a", []string{"x"}, nil}) {
		t.Error("a function is missing, and is not noticed")
	}
}

// TestFilesAreReadUnlessTheirContentIsGiven, as client-go does.
func TestFilesAreReadUnlessTheirContentIsGiven(t *testing.T) {
	for name, c := range map[string]struct {
		tls  rest.TLSClientConfig
		want bool
	}{
		"nothing":                     {rest.TLSClientConfig{}, false},
		"an authority":                {rest.TLSClientConfig{CAFile: "f"}, true},
		"a certificate":               {rest.TLSClientConfig{CertFile: "f"}, true},
		"a key":                       {rest.TLSClientConfig{KeyFile: "f"}, true},
		"an authority given":          {rest.TLSClientConfig{CAFile: "f", CAData: []byte("x")}, false},
		"a certificate given":         {rest.TLSClientConfig{CertFile: "f", CertData: []byte("x")}, false},
		"a key given":                 {rest.TLSClientConfig{KeyFile: "f", KeyData: []byte("x")}, false},
		"an authority, no file":       {rest.TLSClientConfig{CAData: []byte("x")}, false},
		"a file beside what is given": {rest.TLSClientConfig{CAData: []byte("x"), CertFile: "f"}, true},
	} {
		if got := namesFiles(&rest.Config{TLSClientConfig: c.tls}); got != c.want {
			t.Errorf("%s: files are read: %t, want %t", name, got, c.want)
		}
	}
}

// TestWhatIsGivenIsKept: defaults stand for what is not.
func TestWhatIsGivenIsKept(t *testing.T) {
	if o := (Options{}).withDefaults(); o.MaxMembers != defaultMembers || o.ClusterOptions == nil || o.ClusterOptions(Member{}) != nil {
		t.Errorf("without options there may be %d members", o.MaxMembers)
	}
	given := Options{MaxMembers: 7, ClusterOptions: func(Member) []cluster.Option { return make([]cluster.Option, 2) }}.withDefaults()
	if given.MaxMembers != 7 || len(given.ClusterOptions(Member{})) != 2 {
		t.Errorf("there may be %d members, with %d options each", given.MaxMembers, len(given.ClusterOptions(Member{})))
	}
	for qps, want := range map[float32]float32{0: -1, 7: 7} {
		described := Member{Name: "a", Config: &rest.Config{QPS: qps}}
		if cfg, err := newMember(New(Options{}), described).usable(described); err != nil || cfg.QPS != want {
			t.Errorf("%v requests a second became %v: %v", qps, cfg.QPS, err)
		}
	}
}
